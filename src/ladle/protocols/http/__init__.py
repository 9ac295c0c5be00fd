"""Ladle as a service (STREAM section 4.2, PSoup section 3): clients that come and go over HTTP, and the engine in one
process.

The interface is documented by itself, at `/openapi.json` and `/docs`. What a request may do is decided by its token
and `engine/session.py`; what is too much is refused by `door.py` and the settings' limits. Everything that is slow
runs in threads; the event loop carries bytes, and whoever waits for changes (`hub.py`) costs no thread.
"""

"""Streams, tables, queries, functions, sources and rights come and go: each change is one log entry."""

"""Answers and changes: what a plan gives at a moment, and what changes between two (`executor.py`)."""

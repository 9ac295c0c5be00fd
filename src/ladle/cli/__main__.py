"""`python -m ladle.cli` is `ladle`."""

from ladle.cli import program

program()

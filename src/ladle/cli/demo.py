"""`ladle demo`."""

from __future__ import annotations

import argparse
import os

from ladle.cli.place import add_spark, spark_settings
from ladle.cli.terminal import Commands, command


def add(commands: Commands) -> None:
    """Declare the command `demo`."""
    demo = command(
        commands,
        "demo",
        _demo,
        help="live streams and standing queries, in a view of this terminal",
        description="""
            Start four live streams (trades, quotes, sensors, connections) through Spark, register
            standing queries of each window kind, and show rates, epochs, coverage and answers as they change.
            The streams are generated, or replayed from real files when LADLE_DATA names a folder with them.
            Ends DEMO_SECONDS after the first rows are shown, or with Ctrl-C.
        """,
        examples="""
            ladle demo
            ladle demo --seconds 60
            ladle demo -w /tmp/lake          # keep the warehouse (by default it is deleted at the end)
            ladle demo --generated           # don't replay, even if there are files
        """,
    )
    demo.add_argument("-w", "--warehouse", metavar="PATH", help="where to keep it; a new or empty folder")
    add_spark(demo)
    demo.add_argument(
        "--seconds",
        type=float,
        metavar="N",
        default=_seconds_of_environment(),
        help="end by itself N seconds after the first rows are shown (default: $DEMO_SECONDS, else run until Ctrl-C)",
    )
    demo.add_argument("--generated", action="store_true", help="use the generators even if there are real files")
    demo.add_argument("--plain", action="store_true", help="progress lines instead of the live view")
    demo.add_argument("--picture", metavar="FILE", help="at the end, write the view to FILE as an SVG")


def _demo(args: argparse.Namespace) -> int:
    from ladle.demo.run import run_demo

    return run_demo(
        args.warehouse,
        seconds=args.seconds,
        generated=args.generated,
        plain=args.plain,
        picture_file=args.picture,
        settings=spark_settings(args),
    )


def _seconds_of_environment() -> str | None:
    # A text, so that argparse parses it, and complains about it, like the option itself.
    return os.environ.get("DEMO_SECONDS") or None

"""`ladle backup`, `ladle restore` and `ladle verify`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ladle.cli.output import add_format, write_answer
from ladle.cli.place import add_place, add_warehouse, opened, require_warehouse, server_of, typed, warehouse_of
from ladle.cli.terminal import Commands, command, patience

if TYPE_CHECKING:
    from ladle.answer import Answer
    from ladle.backup.progress import ByteProgress


def add(commands: Commands) -> None:
    """Declare the commands `backup`, `restore` and `verify`."""
    backup = command(
        commands,
        "backup",
        _backup,
        help="copy everything durable into a directory, while the warehouse is in use",
        description="""
            Copy everything durable of a warehouse, as of this moment, into a directory. Epochs and pushes go on
            meanwhile, in whichever process holds the warehouse. What an older backup in the directory has already is
            not copied again; a backup that is cut short leaves the older one as it was. With --url the server does
            it, and the directory is the server's.
        """,
        examples="""
            ladle backup /backups/ladle
            ladle backup /backups/ladle -w /data/warehouse --format json
            ladle restore /backups/ladle -w /data/restored
        """,
    )
    add_place(backup)
    backup.add_argument("directory", metavar="DIR", help="where to: a new directory, or one with an older backup")
    add_format(backup)
    restore = command(
        commands,
        "restore",
        _restore,
        help="make a warehouse of a backup",
        description="""
            Make a warehouse of a backup, in a directory that is new or empty. Each file is checked on the way, and a
            backup that is damaged or incomplete is refused. What is derived comes again by itself.
        """,
        examples="""
            ladle restore /backups/ladle
            ladle restore /backups/ladle -w /data/restored
        """,
    )
    add_warehouse(restore)
    restore.add_argument("directory", metavar="DIR", help="the directory that `ladle backup` wrote to")
    add_format(restore)
    _add_verify(commands)


def _add_verify(commands: Commands) -> None:
    verify = command(
        commands,
        "verify",
        _verify,
        help="compare every file of a warehouse with its checksums",
        description="""
            Read every file of a warehouse and compare it with its checksums, while the warehouse is in use or not. Of
            each part it says how many files there are, how many are damaged, and how many were written by a version
            that kept no checksums. Nothing is changed. It ends with 1 if anything is damaged.
        """,
        examples="""
            ladle verify
            ladle verify -w /data/warehouse --format json
        """,
    )
    add_place(verify)
    add_format(verify)


def _verify(args: argparse.Namespace) -> int:
    from ladle.backup.verifying import is_damaged

    if server_of(args) is not None:
        with patience("the server verifies"), opened(args) as db:
            answer: Answer = db.verify()
    else:
        from ladle.archive.folder import local_folder

        path = local_folder(warehouse_of(args))
        require_warehouse(path, args)
        with patience("verifying") as say:
            answer = _verified(path, lambda progress: say(_text(progress)))
    write_answer(answer, form=args.format, rows_max=args.rows)
    return 1 if is_damaged(answer) else 0


def _verified(path: Path, told: Callable[[ByteProgress], None]) -> Answer:
    """Beside a process that writes, not through it; also of a warehouse that can't be opened."""
    from ladle.archive.warehouse import Warehouse
    from ladle.backup.verifying import verify
    from ladle.connection import open_database
    from ladle.engine.commands import VerifyFiles
    from ladle.errors import CorruptLog

    try:
        with open_database(path, read_only=True) as db:
            return db.run(VerifyFiles(told))
    except CorruptLog:
        return verify(Warehouse.open(path, writable=False), None, told)


def _backup(args: argparse.Namespace) -> int:
    if server_of(args) is not None:
        with patience("the server backs up"), opened(args) as db:
            answer: Answer = db.backup(args.directory)
    else:
        from ladle.archive.folder import local_folder
        from ladle.connection import open_database
        from ladle.engine.commands import MakeBackup

        path = local_folder(warehouse_of(args))
        require_warehouse(path, args)
        # Beside a process that writes, not through it: it takes none of its time, and shows how far it is.
        with patience("backing up") as say, open_database(path, read_only=True) as own:
            answer = own.run(MakeBackup(args.directory, lambda progress: say(_text(progress))))
    write_answer(answer, form=args.format, rows_max=args.rows)
    return 0


def _restore(args: argparse.Namespace) -> int:
    from ladle.backup.copying import restore

    with patience("restoring") as say:
        answer = restore(args.directory, warehouse_of(args), told=lambda progress: say(_text(progress)))
    write_answer(answer, form=args.format, rows_max=args.rows)
    if args.format == "table":
        print(f"look at it: {typed(args, 'status')}")
    return 0


def _text(progress: ByteProgress) -> str:
    share = progress.done / progress.total if progress.total else 1.0
    return f"{share:.0%} of {progress.total / 1e6:,.1f} MB"

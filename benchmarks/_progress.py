"""How far a benchmark is: a bar in a terminal, a line per step elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Steps:
    """A context manager; `step` says what is done next."""

    def __init__(self, total: int) -> None:
        console = Console(stderr=True)
        self._lines = not console.is_terminal
        self._done = -1
        self._total = total
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=self._lines,
        )
        self._task = self._progress.add_task("starting", total=total)

    def step(self, text: str) -> None:
        """The next of the steps begins."""
        self._done += 1
        self.say(text)

    def say(self, text: str) -> None:
        """Within a step."""
        self._progress.update(self._task, completed=max(self._done, 0), description=text)
        if self._lines:
            sys.stderr.write(f"[{self._done + 1}/{self._total}] {text}\n")

    def __enter__(self) -> Steps:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._progress.update(self._task, completed=self._total, description="done")
        self._progress.stop()

"""Limits of a statement: how long it is, how many tokens it has, how deep it nests, and how long it may be read.

They are checked on the tokens, before anything is made of them. What is large or deep is parsed and bound in a thread
of its own, whose stack is large enough and which is stopped when time is up: Python code is not interrupted otherwise.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from sqlglot.tokenizer_core import Token, TokenType

from ladle.collector import uncollected
from ladle.config import Settings
from ladle.errors import InvocationTimeout, SqlError
from ladle.sql.position import SourceText
from ladle.thread_stop import ThreadStop

_R = TypeVar("_R")

_SMALL_TOKENS = 2_000
_SMALL_DEPTH = 10
"""What nests no deeper fits on the stack of any thread."""
_FRAMES_PER_LEVEL = 150
"""Calls inside of calls that one level of nesting takes, in the parser or the binder."""
_FRAMES = 1_000
_DEPTH_MAX = 1_000
"""Of what a stack is made for, whatever the setting says."""
_STACK_BYTES = 1 << 28
"""Of which only what is used is ever taken."""
_OPERATORS_PER_LEVEL = 8
"""So many operators side by side nest as deep in a tree as one parenthesis does in the parser."""
_STOP_SECONDS = 0.05

_OPENING = frozenset((TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE))
_CLOSING = frozenset((TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE))
_PREFIXES = frozenset((TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE))
_SIDE_BY_SIDE = frozenset(
    (
        *(TokenType.COMMA, TokenType.AND, TokenType.OR, TokenType.UNION, TokenType.SELECT, TokenType.FROM),
        *(TokenType.WHERE, TokenType.WHEN, TokenType.THEN, TokenType.ELSE, TokenType.JOIN, TokenType.ON),
        *(TokenType.GROUP_BY, TokenType.ORDER_BY, TokenType.HAVING, TokenType.ALL, TokenType.DISTINCT),
    )
)
"""What stands beside what comes before, and not inside of it."""
_SETS = frozenset((TokenType.EXCEPT, TokenType.INTERSECT))
_WORDS = frozenset((TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER))


@dataclass(frozen=True)
class StatementLimits:
    """How much a statement may be, and how long it may take to be read."""

    characters: int = Settings.statement_characters_max
    tokens: int = Settings.statement_tokens_max
    depth: int = Settings.statement_depth_max
    seconds: float = Settings.invoke_seconds_max

    @staticmethod
    def of(settings: Settings) -> StatementLimits:
        """The limits that the settings say."""
        return StatementLimits(
            settings.statement_characters_max,
            settings.statement_tokens_max,
            settings.statement_depth_max,
            settings.invoke_seconds_max,
        )

    def check_text(self, text: str) -> None:
        """Refuse a text that is too long to be looked at."""
        if len(text) > self.characters:
            raise SqlError(
                f"The text has {len(text):,} characters; statement_characters_max allows {self.characters:,}.",
                hint="push rows instead of inserting them, split the script, or raise the setting",
            )

    def check(self, tokens: Sequence[Token], source: SourceText) -> None:
        """Refuse a statement that is too large or nests too deep."""
        if len(tokens) > self.tokens:
            raise SqlError(
                f"The statement has {len(tokens):,} tokens; statement_tokens_max allows {self.tokens:,}.",
                hint="push rows instead of inserting them, join with a table instead of listing values, or raise the "
                "setting",
                position=source.at(tokens[self.tokens].start),
            )
        depth, deepest = nesting(tokens)
        if depth > self.depth:
            raise SqlError(
                f"The statement is nested too deeply: {depth:,} levels, and statement_depth_max allows {self.depth:,}.",
                hint="give parts of it a name with WITH, or raise the setting",
                position=source.at(deepest.start),
            )

    def run(self, tokens: Sequence[Token], work: Callable[[], _R]) -> _R:
        """Do what is to be done with a statement, within its time; `work` may be begun anew."""
        depth, _ = nesting(tokens)
        if len(tokens) <= _SMALL_TOKENS and depth <= _SMALL_DEPTH:
            try:
                return work()
            except (RecursionError, TooDeep):
                # The queries that it reads nest deeper than it does.
                depth = self.depth
        return _Apart(work, depth).result(self.seconds)


def nesting(tokens: Sequence[Token]) -> tuple[int, Token]:
    """How deep a statement nests, and the token where that is."""
    depth, deepest = 0, tokens[0]
    level, outside = _Nesting(), [0]
    levels: list[_Nesting] = []
    for token in tokens:
        kind = token.token_type
        if kind in _OPENING:
            outside.append(outside[-1] + level.depth + 1)
            levels.append(level)
            level = _Nesting(is_case=kind == TokenType.CASE)
        elif kind in _CLOSING or (kind == TokenType.END and level.is_case):
            if levels:
                level = levels.pop()
                outside.pop()
                level.operators += 1  # an element, a call
                level.prefixes = 0
        elif kind in _PREFIXES:
            level.prefixes += 1
            level.operators += 1
        elif kind in _SETS:
            level.sets += 1
        elif kind in _SIDE_BY_SIDE:
            level.operators = level.prefixes = 0
        elif kind in _WORDS:
            level.prefixes = 0
        elif kind == TokenType.DOT:
            pass  # part of a name
        else:
            level.operators += 1
        if outside[-1] + level.depth > depth:
            depth, deepest = outside[-1] + level.depth, token
    return depth, deepest


@dataclass
class _Nesting:
    """What stands side by side inside of one parenthesis."""

    is_case: bool = False
    operators: int = 0
    prefixes: int = 0
    sets: int = 0
    """EXCEPT and INTERSECT."""

    @property
    def depth(self) -> int:
        return max(self.prefixes, self.operators // _OPERATORS_PER_LEVEL, self.sets // _OPERATORS_PER_LEVEL)


class TooDeep(SqlError):
    """More nesting than the parser or the binder can follow."""


def too_deep() -> TooDeep:
    """The error for a statement that nests too deeply."""
    return TooDeep("The statement is nested too deeply.", hint="give parts of it a name with WITH")


class _TimeUp(BaseException):
    """Ends work whose time is up."""


class _Apart(Generic[_R]):
    """Work in a thread of its own. While such threads run, Python lets calls nest as deep as the deepest needs."""

    _lock: ClassVar[threading.Lock] = threading.Lock()
    _depths: ClassVar[list[int]] = []
    _limit_before: ClassVar[int] = 0

    def __init__(self, work: Callable[[], _R], depth: int) -> None:
        self._work = work
        self._depth = _FRAMES + _FRAMES_PER_LEVEL * min(depth, _DEPTH_MAX)
        self._found: list[_R] = []
        self._error: BaseException | None = None
        self._done = threading.Event()
        self._stopper = ThreadStop(_TimeUp)

    def result(self, seconds: float) -> _R:
        with self._nesting_deep():
            thread = self._start()
            try:
                in_time = self._done.wait(seconds)
            except BaseException:  # Ctrl-C
                self._stop(thread)
                raise
            if not in_time:
                self._stop(thread)
        if isinstance(self._error, RecursionError):
            raise too_deep()
        if self._error is not None:
            raise self._error
        if not self._found:
            raise InvocationTimeout(
                f"Parsing and binding the statement took longer than {seconds:g} s and was stopped.",
                hint="make it smaller, or raise invoke_seconds_max",
            )
        return self._found[0]

    def _start(self) -> threading.Thread:
        with self._lock:
            before = threading.stack_size(_STACK_BYTES)
            try:
                thread = threading.Thread(target=self._run, name="ladle-statement", daemon=True)
                thread.start()
            finally:
                threading.stack_size(before)
        return thread

    def _run(self) -> None:
        try:
            self._stopper.run(self._do)
        finally:
            self._done.set()

    def _do(self) -> None:
        try:
            with uncollected():
                self._found.append(self._work())
        except _TimeUp:
            raise
        except BaseException as error:  # whoever waits raises it
            self._error = error

    def _stop(self, thread: threading.Thread) -> None:
        """Raise an exception in the thread, again where somebody catches it, until it has ended."""
        while self._stopper.send(thread):
            self._done.wait(_STOP_SECONDS)

    @contextmanager
    def _nesting_deep(self) -> Iterator[None]:
        with self._lock:
            if not self._depths:
                _Apart._limit_before = sys.getrecursionlimit()
            self._depths.append(self._depth)
            sys.setrecursionlimit(max(self._limit_before, *self._depths))
        try:
            yield
        finally:
            with self._lock:
                self._depths.remove(self._depth)
                sys.setrecursionlimit(max([self._limit_before, *self._depths]))

"""What dear factors have said of the rows that an answer looks at, so that it does not ask them again (decision 23)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ladle.archive.gather import Pick
from ladle.archive.layout import Piece
from ladle.plan import Factor
from ladle.stem.coverage import Coverage
from ladle.stem.masks import States, states_at


def said_of(
    coverage: Coverage, block: int | None, factors: Sequence[Factor], pieces: Sequence[Piece], picks: Sequence[Pick]
) -> dict[str, States]:
    """What is known of the picked rows of some segments, by the factors' texts, for a block that stands or not."""
    names = {piece.file.name for piece in pieces}
    if coverage.masked.isdisjoint(names):
        return {}
    # A block that does not stand is in no mask: it relies on what was said alone.
    own = frozenset((-1 if block is None else block,))
    masks = {name: coverage.masks(name) for name in names}
    known = {}
    for sql in {factor.sql for factor in factors} & {sql for each in masks.values() for sql in each}:
        states = []
        for piece, pick in zip(pieces, picks, strict=True):
            mask = masks[piece.file.name].get(sql)
            if mask is None:
                states.append(np.zeros(pick.rows, dtype=np.uint8))
                continue
            before = sum(segment.rows for segment in piece.file.segments[: piece.row_group])
            numbers = np.arange(pick.start, pick.stop) if pick.numbers is None else pick.numbers
            states.append(states_at(mask.known_to(own), numbers + before))
        known[sql] = np.concatenate(states)
    return known

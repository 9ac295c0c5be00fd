"""Pages made one: the cuts of a column in one grouped filter, whichever page they came from.

So a tile is arranged once for all blocks of a stream. What a page says is renumbered and nothing else; for a hundred
thousand blocks of four terms that took 50 ms beside other work, and 1 s when each term had a text of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ladle.columns import to_numpy
from ladle.stem.grouped_filter import Cuts, GroupedFilter
from ladle.stem.tiles import Array, Terms


def merge_filters(pages: Sequence[Sequence[GroupedFilter]]) -> tuple[list[GroupedFilter], list[Array], list[Array]]:
    """One grouped filter per column. Of each page also: the new number of each of its filters, and of each cut."""
    cuts_of: dict[str, list[Cuts]] = {}
    for filters in pages:
        for each in filters:
            cuts_of.setdefault(each.column, []).append(each.cuts)
    unions = {column: _union(parts) for column, parts in cuts_of.items()}
    number_of = {column: number for number, column in enumerate(unions)}
    first_cut = np.cumsum([0, *(len(union) + 2 for union, _ in unions.values())])
    columns, cuts = [], []
    for filters in pages:
        numbers = [number_of[each.column] for each in filters]
        columns.append(np.array(numbers, dtype=np.int32))
        found = [
            first_cut[number] + unions[each.column][1].pop(0) for number, each in zip(numbers, filters, strict=True)
        ]
        cuts.append(np.concatenate([*found, np.zeros(0, dtype=np.int64)]).astype(np.int32))
    return [GroupedFilter(column, union) for column, (union, _) in unions.items()], columns, cuts


def merge_terms(
    pages: Sequence[Terms], columns: Sequence[Array], predicates: Sequence[Array], cuts: Sequence[Array]
) -> Terms:
    """The terms of all pages, renumbered: the other arguments have, of each page, the new number of everything."""
    source, low, high = [], [], []
    for terms, column, predicate, cut in zip(pages, columns, predicates, cuts, strict=True):
        # predicate number p is -1 - p: what Python finds from the end of an array
        source.append(np.concatenate([column, (-1 - predicate)[::-1]]).astype(np.int32)[terms.source])
        low.append(cut[terms.low])
        high.append(cut[terms.high])
    return Terms(
        fixed(_chained([terms.first_term for terms in pages]), np.int32),
        fixed(np.concatenate(source), np.int32),
        fixed(np.concatenate([terms.or_null for terms in pages]), np.bool_),
        fixed(_chained([terms.first_interval for terms in pages]), np.int32),
        fixed(np.concatenate(low), np.int32),
        fixed(np.concatenate(high), np.int32),
    )


def fixed(values: Sequence[int] | Array, dtype: type[np.generic]) -> Array:
    """An array as it would come from a mapped file: compiled code has one form for it."""
    array = np.array(values, dtype=dtype)
    array.setflags(write=False)
    return array


def _chained(firsts: Sequence[Array]) -> Array:
    """Places of the first of something, page after page; each array's last entry is where the next page begins."""
    begin = np.cumsum([0, *(int(first[-1]) for first in firsts)])
    return np.concatenate([*(first[:-1] + start for first, start in zip(firsts, begin, strict=False)), begin[-1:]])


def _union(parts: Sequence[Cuts]) -> tuple[Cuts, list[Array]]:
    """All cuts, and of each part where its own are among them, between the two ends that every filter has."""
    some = [cuts for cuts in parts if len(cuts)] or parts[:1]
    union, found = _union_of_bytes(some) if some[0].offsets is not None else _union_of_int64(some)
    places = []
    at = 0
    for cuts in parts:
        places.append(np.concatenate([[0], found[at : at + len(cuts)] + 1, [len(union) + 1]]))
        at += len(cuts)
    return union, places


def _union_of_int64(parts: Sequence[Cuts]) -> tuple[Cuts, Array]:
    keys = np.concatenate([cuts.keys for cuts in parts])
    # stable: sorted runs are merged, and not sorted again
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    new = np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(keys)]
    found = np.empty(len(keys), dtype=np.int64)
    found[order] = np.cumsum(new) - 1
    return Cuts(ordered[new]), found


def _union_of_bytes(parts: Sequence[Cuts]) -> tuple[Cuts, Array]:
    encoded = pa.concat_arrays([_binary(cuts) for cuts in parts]).dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary)
    ordered = encoded.dictionary.take(order)
    rank = np.empty(len(order), dtype=np.int64)
    rank[to_numpy(order)] = np.arange(len(order))
    _, offsets, keys = ordered.buffers()
    cuts = Cuts(
        np.frombuffer(b"" if keys is None else keys, dtype=np.uint8),
        np.frombuffer(offsets, dtype=np.int64, count=len(ordered) + 1),
    )
    return cuts, rank[to_numpy(encoded.indices)]


def _binary(cuts: Cuts) -> pa.Array:
    buffers = [None, pa.py_buffer(cuts.offsets), pa.py_buffer(cuts.keys)]
    return pa.Array.from_buffers(pa.large_binary(), len(cuts), buffers)

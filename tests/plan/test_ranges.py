"""The algebra of ranges against the definition: a key is in an interval when it is not below the one end and below the
other.
"""

from __future__ import annotations

import json
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladle.plan import Block, Factor, Plan, Ranges, Residual, Scan, TimeWindow
from ladle.plan.keys import INT64_MAX, INT64_MIN, Key, successor
from ladle.plan.query import plan_from_json, plan_to_json
from ladle.plan.ranges import Interval

NUMBERS = [*range(-5, 6), INT64_MIN, INT64_MIN + 1, INT64_MAX - 1, INT64_MAX]
BEYOND = [*NUMBERS, INT64_MIN - 1, INT64_MAX + 1, -(1 << 70), 1 << 70]
TEXTS = [bytes(text) for size in range(4) for text in product((0, 1, 255), repeat=size)]


def ends(keys: list[Key]) -> st.SearchStrategy[Key | None]:
    return st.none() | st.sampled_from(keys)


def several(keys: list[Key]) -> st.SearchStrategy[list[Interval]]:
    return st.lists(st.tuples(ends(keys), ends(keys)), max_size=5)


def within(key: Key, intervals: list[Interval]) -> bool:
    return any((lo is None or lo <= key) and (hi is None or key < hi) for lo, hi in intervals)


DRAWN = st.sampled_from([(NUMBERS, BEYOND), (TEXTS, TEXTS)]).flatmap(
    lambda kind: st.tuples(
        st.just(kind[0]), several(list(kind[1])), several(list(kind[1])), st.booleans(), st.booleans()
    )
)


@given(DRAWN)
def test_algebra_is_that_of_sets(drawn: tuple[list[Key], list[Interval], list[Interval], bool, bool]) -> None:
    keys, first, second, first_null, second_null = drawn
    one, other = Ranges.of("x", first, null=first_null), Ranges.of("x", second, null=second_null)
    for key in keys:
        in_one, in_other = within(key, first), within(key, second)
        assert one.holds(key) == in_one
        assert one.union(other).holds(key) == (in_one or in_other)
        assert one.intersect(other).holds(key) == (in_one and in_other)
        assert one.complement(null=False).holds(key) == (not in_one)
    assert one.holds(None) == first_null
    assert one.union(other).null == (first_null or second_null)
    assert one.intersect(other).null == (first_null and second_null)


@given(DRAWN)
def test_what_is_equal_has_one_form(drawn: tuple[list[Key], list[Interval], list[Interval], bool, bool]) -> None:
    _, first, second, null, _ = drawn
    one, other = Ranges.of("x", first, null=null), Ranges.of("x", second, null=null)
    for ranges in (one, one.union(other), one.intersect(other), one.complement(null=null)):
        assert Ranges.of("x", ranges.intervals, null=ranges.null) == ranges
        for (_, hi), (lo, _) in zip(ranges.intervals, ranges.intervals[1:], strict=False):
            assert hi is not None
            assert lo is not None
            assert hi < lo
    assert one.complement(null=not null).complement(null=null) == one
    apart = one.complement(null=False).union(other.complement(null=False)).complement(null=null)
    assert apart.intervals == one.intersect(other).intervals


@given(DRAWN)
def test_json_is_exact(drawn: tuple[list[Key], list[Interval], list[Interval], bool, bool]) -> None:
    ranges = Ranges.of("x", drawn[1], null=drawn[3])
    assert Ranges.from_json(json.loads(json.dumps(ranges.to_json()))) == ranges


def test_ends_outside_int64_are_no_ends() -> None:
    assert Ranges.of("x", [(INT64_MAX + 1, None)]) == Ranges("x", ())
    assert Ranges.of("x", [(None, INT64_MIN)]) == Ranges("x", ())
    assert Ranges.of("x", [(INT64_MIN, INT64_MAX + 1)], null=True) == Ranges("x", ((None, None),), null=True)
    assert Ranges.of("x", [(3, 1 << 70)]) == Ranges("x", ((3, None),))
    assert Ranges.of("x", [(b"", b"a")]) == Ranges("x", ((None, b"a"),))


def test_ranges_of_different_columns_do_not_meet() -> None:
    with pytest.raises(ValueError, match="x and of y"):
        Ranges("x", ()).union(Ranges("y", ()))


@given(st.sampled_from(TEXTS), st.sampled_from(TEXTS))
def test_nothing_is_between_a_key_and_its_successor(one: bytes, other: bytes) -> None:
    assert (other > one) == (other >= successor(one))


def plan_with(factor: Factor) -> Plan:
    scan = Scan("_s0", Block("s", (factor,)), TimeWindow(), ("x",))
    return Plan("SELECT x FROM s", (scan,), Residual("SELECT x FROM _s0", None), None)


def test_ranges_go_through_the_log() -> None:
    ranges = Ranges("x", ((None, b"\xff"), (b"\xff\x01", None)), null=True)
    plan = plan_with(Factor("`x` > 1", '"x" > 1', ("x",), ranges))
    again = plan_from_json(json.loads(json.dumps(plan_to_json(plan))))
    assert again == plan
    assert again.scans[0].block.factors[0].ranges == ranges


def test_logs_from_before_ranges_load() -> None:
    plan = plan_with(Factor("`x` > 1", '"x" > 1', ("x",)))
    value = plan_to_json(plan)
    assert value["scans"][0]["factors"] == [["`x` > 1", '"x" > 1', ["x"]]]
    assert plan_from_json(value).scans[0].block.factors[0].ranges is None


def test_the_text_is_the_identity_of_a_factor() -> None:
    bare, ranged = Factor("a", "b", ("x",)), Factor("a", "b", ("x",), Ranges("x", ()))
    assert bare == ranged
    assert len({bare, ranged}) == 1

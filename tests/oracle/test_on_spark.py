"""The same comparison on real Spark: epochs are jobs, and residuals that DuckDB may not run are Spark's.

With `residual_rows_max` at one row nearly every residual goes to Spark. The oracle itself is judged by Spark too.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.driver import MODES, Driver
from tests.support.generate import WALL_US, random_rows, random_stream
from tests.support.judge import SparkJudge
from tests.support.oracle import Oracle
from tests.support.queries import QueryMaker
from tests.support.tree import Query, columns_of, is_nested

import ladle
from ladle.clock import ManualClock
from ladle.testing.one_row import at_one_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.support.driver import Connect

pytestmark = pytest.mark.spark


def connect_to(spark: SparkSession, **more: Any) -> Connect:
    def connect(path: Path, clock: ManualClock, settings: dict[str, Any]) -> ladle.Database:
        return ladle.connect(path, spark=spark, clock=clock, settings=settings | more)

    return connect


def walk(driver: Driver, rng: random.Random, steps: int) -> None:
    """A random walk over the machine's actions, with those that cost a Spark job rarer."""
    actions = {
        "push": 5,
        "register": 3,
        "ask": 3,
        "invoke_at": 2,
        "read_by_name": 1,
        "advance": 3,
        "unregister": 1,
        "restart": 1,
        "maintain": 1,
        "backfill": 1,
        "delete_derived": 1,
    }
    for _ in range(steps):
        seed = rng.randrange(1 << 32)
        match rng.choices(list(actions), list(actions.values()))[0]:
            case "push":
                driver.push(seed, rng.choice((1, 10, 60)))
            case "register" if len(driver.standing) < 6:
                driver.register(seed, rng.randint(0, 3), rng.choice(MODES))
            case "ask":
                driver.ask(seed, rng.randint(0, 3))
            case "invoke_at":
                driver.invoke_at(seed)
            case "read_by_name":
                driver.read_by_name(seed)
            case "unregister" if len(driver.standing) > 2:
                driver.unregister(seed)
            case "restart":
                driver.restart(seed)
            case "maintain":
                driver.maintain()
            case "backfill":
                driver.backfill()
            case "delete_derived":
                driver.delete_derived(seed)
            case _:
                driver.advance(rng.choice((1, 10, 300)))
        driver.check(limit=1)


def start(path: Path, connect: Connect, seed: int) -> Driver:
    driver = Driver(path, connect, seed=seed, without_spark=False)
    for number in range(2):
        driver.create_stream(seed + number)
        driver.push(seed + number, 20)
    for number, mode in enumerate(MODES):
        driver.register(seed + number, number, mode)
    return driver


@pytest.mark.parametrize("seed", at_one_row([1], [1, 2]))
def test_answers_on_spark_are_the_oracles(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    driver = start(tmp_path / "warehouse", connect_to(spark), seed)
    steps = at_one_row(8, 45)
    walk(driver, random.Random(seed), steps)
    driver.check()
    driver.check_catalog()
    assert driver.checked >= steps
    driver.close()


@pytest.mark.not_at_one_row("the setting is its subject; the walk above is the same there")
def test_residuals_on_spark_are_the_oracles(spark: SparkSession, tmp_path: Path) -> None:
    driver = start(tmp_path / "warehouse", connect_to(spark, residual_rows_max=1), seed=3)
    walk(driver, random.Random(3), 15)
    driver.check()
    assert driver.filled > 10
    driver.close()


@pytest.mark.not_at_one_row("no engine takes part")
def test_spark_agrees_with_the_oracle(spark: SparkSession) -> None:
    """No engine here: both renderings of a query, over the same raw tuples."""
    compared = 0
    for seed in range(2):
        rng = random.Random(seed)
        oracle = Oracle()
        streams = [random_stream(rng, f"s{number}") for number in range(2)]
        for stream in streams:
            oracle.create(stream)
            oracle.push(stream.name, random_rows(rng, stream, WALL_US, 40, misfits=True), WALL_US)
        judge = SparkJudge(spark, oracle)
        named: dict[str, Query] = {}
        for number in range(16):
            query = QueryMaker(rng, streams, WALL_US, number % 4, named, first_name=number * 100).query()
            if number < 4 and not any(is_nested(column.type) for column in columns_of(query)):
                named[f"q{number}"] = query
            assert judge.difference(query, WALL_US) is None
            compared += 1
        oracle.close()
    assert compared == 32

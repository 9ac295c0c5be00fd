"""The pages of the site: every example runs and prints what the page says; the site builds without a broken link."""

from __future__ import annotations

import re
import runpy
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.docs.pages import DOCS, Block, blocks, run, sections

import ladle
from ladle.testing import connect_inline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FROM_SPARK = sections("from-spark.md")
COOKBOOK = sections("cookbook.md")
WHEN_NOT = sections("when-not.md")
CONCEPTS = sections("concepts.md")


def in_a_warehouse(section: str, where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(where)
    monkeypatch.setenv("COLUMNS", "100")
    names: dict[str, Any] = {}
    with connect_inline("warehouse") as db:
        run(blocks(section), db, names)


@pytest.mark.parametrize("recipe", COOKBOOK)
def test_a_recipe_does_what_it_says(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert blocks(COOKBOOK[recipe])
    in_a_warehouse(COOKBOOK[recipe], tmp_path, monkeypatch)


def test_the_first_page_has_the_ten_lines_of_the_readme() -> None:
    """Which are run by tests of their own."""
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    (ten_lines,) = [
        block for block in blocks((DOCS / "index.md").read_text(encoding="utf-8")) if block.language == "python"
    ]
    assert f"```python\n{ten_lines.text}```" in readme


@pytest.mark.parametrize("reason", [name for name, text in WHEN_NOT.items() if blocks(text)])
def test_what_is_said_not_to_work_does_not(reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_a_warehouse(WHEN_NOT[reason], tmp_path, monkeypatch)


def test_the_pictures_are_those_that_are_drawn() -> None:
    drawn = runpy.run_path(str(DOCS / "pictures.py"))["PICTURES"]
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))
    assert {"windows", "lifetimes", "epochs", "way-of-a-tuple", "way-of-a-query", "way-of-a-delta"} <= set(drawn)
    for name, picture in drawn.items():
        assert f"(images/{name}.svg)" in pages, "drawn for no page"
        assert (DOCS / "images" / f"{name}.svg").read_text(encoding="utf-8") == picture().svg(), (
            "python docs/pictures.py"
        )


def test_files_that_pictures_and_the_architecture_name_are_there() -> None:
    sources = DOCS.parent / "src" / "ladle"
    text = (DOCS / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)", text))
    for picture in DOCS.glob("images/way-*.svg"):
        named |= set(re.findall(r"((?:\w+/)*\w+\.py)\b", picture.read_text(encoding="utf-8")))
    assert len(named) > 50
    lost = {name for name in named if not (sources / name).exists() and not (DOCS.parent / name).exists()}
    assert lost == set()


def test_every_page_is_in_the_menu() -> None:
    menu = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {page.name for page in DOCS.glob("*.md")} - {"STATUS.md"}
    assert {page for page in pages if f": {page}\n" not in menu} == set()


@pytest.mark.parametrize("concept", [name for name, text in CONCEPTS.items() if blocks(text)])
def test_a_concept_is_as_it_says(concept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_a_warehouse(CONCEPTS[concept], tmp_path, monkeypatch)


def blocks_but(title: str) -> list[Block]:
    """All blocks of the page for users of Spark, in order, without those of one of the two systems."""
    return [block for text in FROM_SPARK.values() for block in blocks(text) if block.title != title]


def test_what_is_written_in_place_of_sparks_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(ladle, "connect", connect_inline, raising=False)
    names: dict[str, Any] = {}
    db = connect_inline("warehouse")
    try:
        run(blocks_but("Spark"), db, names)
    finally:
        names["db"].close()


@pytest.mark.spark
def test_sparks_code_gives_what_ours_gives(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oracle is Spark itself: the tables that its streaming queries write have the rows of our answers."""
    monkeypatch.chdir(tmp_path)
    here = spark.newSession()
    here.conf.set("spark.sql.shuffle.partitions", 1)
    compared = ("tumbling", "hopping", "filled", "once")
    names: dict[str, Any] = {"spark": here}
    with connect_inline(tmp_path / "warehouse") as db:
        try:
            run([block for block in blocks_but("Ladle") if block.language == "python"], db, names)
            run([block for block in blocks_but("Spark") if block.title == "Ladle"][:5], db, names)
            for name in compared:
                rows = [row.asDict() for row in here.table(name).collect()]
                told = [{key: utc(value) for key, value in row.items()} for row in db.invoke(name)]
                assert rows
                assert sorted(map(str, rows)) == sorted(map(str, told)), name
        finally:
            for query in here.streams.active:
                query.stop()


def utc(value: Any) -> Any:
    """A time as PySpark gives it: without a zone, in that of the session, which is UTC."""
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value

"""Settings: from the environment, from `connect`, and refused when they make no sense."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from ladle.config import Settings
from ladle.errors import LadleError


def test_overrides_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LADLE_SEGMENT_ROWS_MAX", "100")
    monkeypatch.setenv("LADLE_GRACE_SECONDS", "0.5")
    settings = Settings.load({"segment_rows_max": 7})
    assert settings.segment_rows_max == 7
    assert settings.grace_seconds == 0.5


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("segment_rows_max", 0, "can't be 0"),
        ("segment_rows_max", -1, "can't be -1"),
        ("invoke_seconds_max", float("nan"), "can't be nan"),
        ("derived_memory_bytes_max", "big", "can't be 'big'"),
        ("spark_master", "sprak://host:7077", "'sprak://host:7077' is not the address of a Spark master"),
        ("spark_master", "spark://host", "'spark://host' is not the address of a Spark master"),
        ("spark_master", "", "'' is not the address of a Spark master"),
        ("spark_conf", {"executor.memory": "4g"}, "'executor.memory' is not a setting of Spark's"),
        ("spark_conf", {"spark.master": "yarn"}, "spark.master is not among Spark's settings here"),
        ("spark_conf", {"spark.sql.ansi.enabled": False}, "spark.sql.ansi.enabled is Ladle's to set"),
        ("spark_conf", "spark.a=b", "spark_conf can't be 'spark.a=b'"),
        ("segments_max", 5, "There is no setting 'segments_max'. Near ones: segment_rows_max, "),
    ],
)
def test_nonsense_is_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(LadleError, match=message):
        Settings.load({name: value})


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("cache_bytes_max", "derived_memory_bytes_max"),
        ("kept_bytes_max", "derived_memory_bytes_max"),
        ("aggregates_bytes_max", "derived_memory_bytes_max"),
        ("results_bytes_max", "derived_disk_bytes_max"),
    ],
)
def test_settings_that_were_replaced_are_refused_with_the_new_name(
    name: str, instead: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = f"There is no setting '{name}' any more.*: {instead} has taken its place"
    with pytest.raises(LadleError, match=message):
        Settings.load({name: 1})
    (tmp_path / "ladle.toml").write_text(f"{name} = 1\n")
    with pytest.raises(LadleError, match=message):
        Settings.load(file=tmp_path / "ladle.toml")
    monkeypatch.setenv(f"LADLE_{name.upper()}", "1")
    with pytest.raises(LadleError, match=message):
        Settings.load()


def test_settings_of_spark_are_merged_name_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "ladle.toml"
    conf = "spark.cores.max = 4\nspark.task.cpus = 1\nspark.shuffle.compress = false\n"
    file.write_text(f'spark_master = "yarn"\n[spark_conf]\n{conf}')
    monkeypatch.setenv("LADLE_SPARK_MASTER", "spark://one:7077,two:7077")
    monkeypatch.setenv("LADLE_SPARK_CONF", "spark.cores.max=5 spark.executor.extraJavaOptions='-Da=1 -Db=2'")
    settings = Settings.load({"spark_conf": {"spark.task.cpus": "2"}}, file)
    assert settings.spark.master == "spark://one:7077,two:7077"
    assert settings.spark.conf == {
        "spark.cores.max": "5",
        "spark.task.cpus": "2",
        "spark.shuffle.compress": "false",
        "spark.executor.extraJavaOptions": "-Da=1 -Db=2",
    }
    assert Settings(**asdict(settings)) == settings


@pytest.mark.parametrize(
    "master",
    ["local", "local[2]", "local[*,4]", "local-cluster[2,1,1024]", "yarn", "k8s://https://a:443", "spark://h:7077"],
)
def test_masters_that_spark_knows(master: str) -> None:
    assert Settings(spark_master=master).spark.local == master.startswith("local")


def test_text_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LADLE_DERIVED_MEMORY_BYTES_MAX", "big")
    with pytest.raises(LadleError, match="LADLE_DERIVED_MEMORY_BYTES_MAX='big' is not a int"):
        Settings.load()


@pytest.mark.parametrize("text", ["spark.cores.max", "spark.a='b"])
def test_text_that_is_no_setting_of_spark_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("LADLE_SPARK_CONF", text)
    with pytest.raises(LadleError, match="LADLE_SPARK_CONF: "):
        Settings.load()

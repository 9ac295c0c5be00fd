"""What a type checker, help() and an editor see of the package: README's own lines pass `mypy --strict`."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import ladle

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
STRICT = "# mypy: warn-return-any\n"
"""What the project's own settings leave out of `--strict`."""
BESIDE = """
files = db.spark.readStream.format("parquet").load("incoming")
db.attach("trades", files, source="files")
for row in dear.invoke():
    print(row["symbol"])
print(len(dear.invoke()), dear.invoke()[0]["price"])
unnamed = db.register("SELECT symbol FROM trades")
print(unnamed.name.upper())
with ladle.connect("http://127.0.0.1:8642", token="ladle_...") as remote:
    print(remote.query("dear").invoke().to_pandas())
"""
WRONG = """
dear.invok()
ladle.connect("warehouse", readonly=True)
"""


def test_the_readme_passes_a_strict_type_checker(tmp_path: Path) -> None:
    ten_lines = re.search(r"```python\n(import ladle.*?)```", README, re.S)
    assert ten_lines is not None
    right = STRICT + ten_lines[1] + BESIDE
    program = tmp_path / "program.py"
    program.write_text(right + WRONG)
    package = Path(ladle.__file__).parent
    assert (package / "py.typed").is_file()
    # with the project's settings and in its directory: what `make lint` has looked at is not looked at again
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(program)]
    done = subprocess.run(
        command,
        env={**os.environ, "MYPYPATH": str(package.parent)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = right.count("\n") + 2
    wrong = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    assert wrong == {lines, lines + 1}, done.stdout + done.stderr


def test_help_shows_what_connect_takes() -> None:
    parameters = inspect.signature(ladle.connect).parameters
    assert list(parameters) == [
        "where", "spark", "master", "read_only", "clock", "settings", "token", "certificate",
    ]  # fmt: skip
    assert not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    said = inspect.getdoc(ladle.connect)
    assert said is not None
    assert all(name in said for name in parameters if name != "where")


def test_an_editor_is_offered_the_names() -> None:
    assert set(ladle.__all__) <= set(dir(ladle))

"""The programs in ``examples/`` run on a node as they are and print what they promise."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from support.cli import RUN_S, Cli, environment
from support.nats import PROJECT

PRINTED = {
    "agent_loop.py": ["Which van do you mean?", "I take the blue van."],
    "crew.py": [
        "writer: CREW.md of the crew is written by a LEAD of the crew, an OWNER or an ADMIN, not by AGENT",
        "writer: knows the rule: True, about harbours: True",
        "checker: knows the rule: True, about harbours: False",
    ],
    "mcp_client.py": [
        "tools: memory_append_daily, memory_read, memory_status, memory_write, recall, remember",
        "recalled: Zoë prefers tea",
    ],
}
MAX_LINES_OF_THE_LOOP = 32


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("examples") / "data"
    with Cli(folder).up():
        yield folder


def test_every_example_is_tried() -> None:
    assert {path.name for path in (PROJECT / "examples").glob("*.py")} == set(PRINTED)


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_what_it_promises(name: str, data_dir: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, PROJECT / "examples" / name],
        capture_output=True, text=True, timeout=RUN_S, check=False,
        env=environment(CREW_JOURNAL_DATA_DIR=str(data_dir), PATH=path, PYTHONIOENCODING="utf-8"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == PRINTED[name]


def test_the_notebook_draws_the_journal(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cells run in order in one namespace, as Jupyter runs them; the value of a last expression is what it shows."""
    cli = Cli(data_dir)
    for n in range(3):
        cli("publish", f"<b>note {n}</b>", "--type", "notebook.note")
    kept = json.loads(cli("remember", "The blue van goes to Ulm", "--json").out)
    cli("list", "--count", "--min-seq", str(kept.get("seq") or kept["entries"][0]["seq"]))
    monkeypatch.setenv("CREW_JOURNAL_DATA_DIR", str(data_dir))
    notebook = json.loads((PROJECT / "examples" / "explore.ipynb").read_text("utf-8"))
    assert (notebook["nbformat"], all(not cell.get("outputs") for cell in notebook["cells"])) == (4, True)
    names: dict[str, Any] = {}
    drawn = [
        shown._repr_svg_()
        for cell in notebook["cells"]
        if cell["cell_type"] == "code" and (shown := _shown_by("".join(cell["source"]), names)) is not None
    ]
    for svg in drawn:
        ElementTree.fromstring(svg)
    by_type, by_day, hits = drawn
    assert ">notebook.note</text>" in by_type
    assert by_day.count("<rect") >= 1
    assert ">The blue van goes to Ulm</text>" in hits
    assert len(names["entries"]) >= 4


def _shown_by(source: str, names: dict[str, Any]) -> Any:
    """Run a cell; the value of its last statement if that is an expression."""
    parsed = ast.parse(source)
    last = parsed.body[-1]
    if isinstance(last, ast.Expr):
        parsed.body.pop()
    exec(compile(parsed, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if isinstance(last, ast.Expr) else None


def test_the_loop_stays_short() -> None:
    assert len((PROJECT / "examples" / "agent_loop.py").read_text("utf-8").splitlines()) <= MAX_LINES_OF_THE_LOOP

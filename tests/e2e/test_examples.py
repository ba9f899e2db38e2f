"""The programs in ``examples/`` run on a node as they are and print what they promise."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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


def test_the_loop_stays_short() -> None:
    assert len((PROJECT / "examples" / "agent_loop.py").read_text("utf-8").splitlines()) <= MAX_LINES_OF_THE_LOOP

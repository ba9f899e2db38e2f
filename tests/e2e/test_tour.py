"""The tour of memory works as it is written: its commands are run in its order, and print what it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.cli import COMMAND, RUN_S, Cli, environment
from support.nats import PROJECT

BLOCKS = re.findall(r"^```sh\n(.*?)^```", (PROJECT / "docs" / "tour.md").read_text("utf-8"), re.DOTALL | re.MULTILINE)
REFUSED = "We use MySQL"
"""In the one block whose command fails, as the text above it says."""


@pytest.mark.nightly
def test_the_week_of_the_tour_goes_as_it_says(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "memory-tour")
    begin, environs, *steps = BLOCKS
    assert "crew-journal up" in begin
    assert "CREW_JOURNAL_DATA_DIR" in environs
    with cli.up() as up:
        path = os.pathsep.join((str(Path(COMMAND).parent), os.environ["PATH"]))
        env = environment(PATH=path, CREW_JOURNAL_DATA_DIR=str(cli.data_dir))
        printed = {step: _run(step, up.facts["http"], tmp_path, env) for step in steps}

    def of(words: str) -> str:
        [found] = [out for step, out in printed.items() if words in step]
        return found

    searched = of("how do we roll back")
    assert 0 < searched.index("topics/deployment.md") < searched.index("daily/"), "the topic beats the daily noise"
    block = of("memory block --agent researcher\n")
    assert "7 days since the last notes" in block
    texts = ("Wants CHANGELOG entries in the same PR", "- Reads release notes first", "PostgreSQL 16", "option B")
    for text in (*texts, "- Never force-pushes to main"):
        assert text in block
    assert "PostgreSQL 16" in of("cat home/crew"), "the lead's decision is a file of the agent's directory"
    of_files = of("memory block --path")
    assert "- Never force-pushes to main" in of_files
    assert "PostgreSQL 16" in of_files
    newcomer = of("memory block --agent newcomer")
    assert "PostgreSQL 16" in newcomer
    assert "CHANGELOG" not in newcomer, "no agent is given the memory of another"
    first = of("--agent researcher --opener maria")
    assert "[OPERATOR MODEL]" in first
    assert "- timezone: UTC+1\n- prefers: short answers\n" in first
    assert "- timezone: UTC+1\n- prefers: answers with examples\n" in of("memory block --opener maria")
    assert "[OPERATOR MODEL]" not in of("operator consent maria withdrawn"), "opting out removes it at once"
    assert "+Deploy by hand" in of("memory diff")
    assert of("memory retract").count("topics/deployment.md:") == 1, "it is found once it is restored, not before"


def _run(step: str, url: str, tmp_path: Path, env: dict[str, str]) -> str:
    """What a block prints on stdout."""
    script = step.replace("http://127.0.0.1:9221", url).replace("/tmp", str(tmp_path))
    done = subprocess.run(
        [str(shutil.which("bash")), "-euo", "pipefail", "-c", script],
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
        env=env,
    )
    assert (done.returncode == 0) is (REFUSED not in step), f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout

"""The tour of memory works as it is written: its commands, pasted into a terminal, print what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cli import Cli
from support.terminal import pasted, shell_blocks

REFUSED = "We use MySQL"
"""In the one block whose command fails, as the text above it says."""


@pytest.mark.nightly
def test_the_week_of_the_tour_goes_as_it_says(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "memory-tour")
    begin, environs, *steps = shell_blocks("docs/tour.md")
    assert "crew-journal up" in begin
    assert "CREW_JOURNAL_DATA_DIR" in environs
    with cli.up() as up:
        printed = {step: _run(step, up.facts["http"], tmp_path, cli.data_dir) for step in steps}

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
    learned = of("consolidate run --crew backend")
    assert "quota is exhausted → Ask for quota the day before (seen 4 times on 4 days" in learned
    assert "- the licence check of the deployment takes 20 minutes (noted on 5 days)" in of("memory read CREW --crew")
    assert "quota" not in of("the quota was raised").partition("[CREW SHARED MEMORY]")[2], (
        "it is gone from the next block"
    )
    assert "+Deploy by hand" in of("memory diff")
    assert of("memory retract").count("topics/deployment.md:") == 1, "it is found once it is restored, not before"


def _run(step: str, url: str, folder: Path, data_dir: Path) -> str:
    """What a block prints."""
    script = step.replace("http://127.0.0.1:9221", url).replace("/tmp", str(folder))
    done = pasted(script, folder, CREW_JOURNAL_DATA_DIR=str(data_dir))
    assert (done.code == 0) is (REFUSED not in step), f"{script}\n{done.out}"
    return done.out

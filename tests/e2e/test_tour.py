"""The tour of memory works as it is written: its commands, pasted into a terminal, print what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cli import Cli
from support.terminal import Terminal


@pytest.mark.nightly
def test_the_week_of_the_tour_goes_as_it_says(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "memory-tour")
    with cli.up() as up:
        env = {"CREW_JOURNAL_DATA_DIR": str(cli.data_dir)}
        printed = dict(Terminal(tmp_path, up.facts["http"], env=env).paste_page("docs/tour.md"))

    def of(words: str) -> str:
        [found] = [out for step, out in printed.items() if words in step]
        return found

    searched = of("how do we roll back")
    assert 0 < searched.index("topics/deployment.md") < searched.index("daily/"), "the topic beats the daily noise"
    block = printed["crew-journal memory block --agent researcher\n"]
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
    lessons = of("lesson list")
    assert lessons.count("Never deploy on Fridays") == 2, "in the list and in the next block"
    assert "[from user maria, " in lessons
    first = of("--agent researcher --opener maria")
    assert "[OPERATOR MODEL]" in first
    assert "- timezone: UTC+1\n- prefers: short answers\n" in first
    assert "- timezone: UTC+1\n- prefers: answers with examples\n" in of("memory block --opener maria")
    assert "[OPERATOR MODEL]" not in of("operator consent maria withdrawn"), "opting out removes it at once"
    assert "pending" in of("consolidate run --crew backend"), "one agent alone teaches no other"
    learned = of("proposal approve")
    assert (
        "[from api] Load test … refused because the staging cluster quota is exhausted → Ask for quota the day"
        in learned
    )
    assert "(seen 4 times on 1 day, confidence" in learned
    assert "- the licence check of the deployment takes 20 minutes (noted on 5 days)" in of("memory read CREW --crew")
    assert "quota" not in of("the quota was raised").partition("[CREW SHARED MEMORY]")[2], (
        "it is gone from the next block"
    )
    assert "+Deploy by hand" in of("memory diff")
    assert of("memory retract").count("topics/deployment.md:") == 1, "it is found once it is restored, not before"

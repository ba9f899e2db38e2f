"""The tutorial works as it is written: its commands are pasted into a terminal in its order."""

from pathlib import Path

import pytest
from support.cli import Cli
from support.terminal import pasted, shell_blocks

REFUSED = "Another text"
"""In the one block whose command fails, as the text above it says."""


@pytest.mark.nightly
def test_the_commands_of_the_tutorial_do_what_it_says(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "first-journal")
    begin, environs, *steps = shell_blocks("docs/tutorial.md")
    assert "crew-journal up" in begin
    assert "CREW_JOURNAL_DATA_DIR" in environs
    with cli.up() as up:
        for step in steps:
            script = step.replace("http://127.0.0.1:9220", up.facts["http"]).replace("/tmp", str(tmp_path))
            done = pasted(script, tmp_path, CREW_JOURNAL_DATA_DIR=str(cli.data_dir))
            assert (done.code == 0) is (REFUSED not in step), f"{script}\n{done.out}"
            if "--token" in step:
                assert "/srv/backup" not in done.out, "ada does not see what bruno wrote"

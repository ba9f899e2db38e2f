"""The tutorial works as it is written: its commands are pasted into a terminal in its order."""

from pathlib import Path

import pytest
from support.cli import Cli
from support.terminal import Terminal


@pytest.mark.nightly
def test_the_commands_of_the_tutorial_do_what_it_says(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "first-journal")
    with cli.up() as up:
        env = {"CREW_JOURNAL_DATA_DIR": str(cli.data_dir)}
        printed = Terminal(tmp_path, up.facts["http"], env=env).paste_page("docs/tutorial.md")
    [of_ada] = [out for script, out in printed if "--token" in script]
    assert "/srv/backup" not in of_ada, "ada does not see what bruno wrote"

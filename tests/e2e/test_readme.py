"""The README works as it is written: its commands are pasted into a terminal, in its order, beside a running `up`."""

from pathlib import Path

import pytest
from support.cli import Cli
from support.terminal import pasted, shell_blocks

ADDRESS = "http://127.0.0.1:9119"


@pytest.mark.nightly
def test_the_commands_of_the_readme_do_what_it_says(tmp_path: Path) -> None:
    begin, minutes, http = shell_blocks("README.md")
    assert "make run" in begin
    lines = minutes.replace("\\\n", " ").splitlines()
    assert lines.pop(0) == ". .venv/bin/activate"
    cli = Cli(tmp_path / ".crew-journal")
    with cli.up("--sample") as up:
        address = up.facts["http"]
        for line in lines:
            done = pasted(line, tmp_path)
            assert done.code == 0, f"{line}\n{done.out}"
            assert done.out, line
        done = pasted(http.replace(ADDRESS, address), tmp_path)
        assert done.code == 0, done.out
        assert "heap limit at 768 MiB" in done.out

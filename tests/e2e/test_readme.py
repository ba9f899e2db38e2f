"""The README works as it is written: its commands are pasted into a terminal, in its order, beside a running `up`."""

from pathlib import Path

from support.cli import Cli
from support.terminal import Terminal


def test_the_commands_of_the_readme_do_what_it_says(tmp_path: Path) -> None:
    with Cli(tmp_path / ".crew-journal").up("--sample") as up:
        [(_, minutes), (_, over_http)] = Terminal(tmp_path, up.facts["http"]).paste_page("README.md")
    assert "Maria wants summaries in German" in minutes
    assert "Prefers short commit subjects" in minutes
    assert "1 met, 0 not met" in minutes
    assert "heap limit at 768 MiB" in over_http

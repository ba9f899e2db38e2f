"""The commands of every page work as they are written: pasted into a terminal of 80 columns, in their order."""

from __future__ import annotations

import re
import socket
from collections import Counter
from pathlib import Path

import pytest
from support.cli import Cli
from support.nats import PROJECT
from support.page_needs import NEEDS
from support.terminal import Terminal, blocks

PAGES = {
    page: found
    for path in (PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md")))
    if (found := blocks(page := str(path.relative_to(PROJECT))))
}
TESTED_ELSEWHERE = ("README.md", "docs/tour.md", "docs/tutorial.md")
"""By tests that also look at what their commands print."""
OUTSIDE = re.compile(r"^(?: {4}|```\n)(?:[A-Z_]+=\S+ )*(?:crew-journal|curl|pip|uv) ", re.MULTILINE)
OPTIONS = {"docs/indexing.md": ("--embedder", "minilm")}
NOT_RUN = {
    "README.md": 2,
    "docs/chat-models.md": 1,
    "docs/cluster.md": 4,
    "docs/embeddings.md": 2,
    "docs/installing.md": 2,
    "docs/operating.md": 2,
    "docs/peers.md": 1,
    "docs/providers.md": 1,
    "docs/python.md": 1,
    "docs/tour.md": 1,
    "docs/tutorial.md": 1,
    "docs/why/pgvector.md": 1,
}
"""How many blocks of each page are not run; each says why."""


def test_every_command_of_the_pages_is_in_a_shell_block() -> None:
    outside = {
        f"{path.name}: {found[0].strip()}"
        for path in (PROJECT / "README.md", *(PROJECT / "docs").rglob("*.md"))
        for found in OUTSIDE.finditer(path.read_text("utf-8"))
    }
    assert outside == set()


def test_a_block_that_is_not_run_says_why() -> None:
    unrun = [(page, block) for page, found in PAGES.items() for block in found if block.reason]
    for page, block in unrun:
        print(f"{page}: {block.reason}: {block.script.splitlines()[0]}")
    assert Counter(page for page, _ in unrun) == NOT_RUN
    assert len(unrun) * 4 < sum(map(len, PAGES.values()))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "page",
    [page for page, found in PAGES.items() if page not in TESTED_ELSEWHERE and not all(one.reason for one in found)],
)
def test_the_commands_of_a_page_do_what_it_says(page: str, tmp_path: Path) -> None:
    cli = Cli(tmp_path / ".crew-journal")
    with cli.up("--sample", *OPTIONS.get(page, ())) as up:
        cli("agent", "create", "ada", "--crew", "platform", "--memory")
        words = NEEDS[page](cli, tmp_path) if page in NEEDS else {}
        printed = Terminal(tmp_path, up.facts["http"], {"9120": str(_free_port()), **words}).paste_page(page)
    assert all(out for script, out in printed if "echo" not in script)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])

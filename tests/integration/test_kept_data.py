"""The data directory of each release opens with this version: the same entries, the same answers, views that verify."""

from importlib.metadata import version
from pathlib import Path

import pytest
from support.kept_data import answers, releases, unpack
from support.running import running_node

from crew_journal.services.client import AsyncCrewJournal


def test_the_data_directory_of_this_release_is_kept() -> None:
    assert version("crew-journal") in releases(), "record it: see tests/support/kept_data.py"


@pytest.mark.parametrize("release", releases())
async def test_a_data_directory_of_a_release_opens_with_what_it_held(release: str, tmp_path: Path) -> None:
    data_dir, expected = unpack(release, tmp_path)
    async with running_node(data_dir) as node, AsyncCrewJournal(node.http_url, node.owner_token) as journal:
        found = await answers(journal)
        assert found["recalled"] == expected["recalled"]
        for entry, kept in zip(found["entries"], expected["entries"], strict=True):
            assert {name: entry[name] for name in kept} == kept
        about = await journal.status()
        assert about["views_put_aside"] is None, "the views are the ones that were kept"
        *_, verified = [line async for line in journal.verify()]
        assert verified["result"]["equal"], verified
        done = await journal.append({"entry_type": "note.taken", "summary": "Written by the later version"})
        assert (await journal.get(done.id, min_seq=done.seq)).summary == "Written by the later version"

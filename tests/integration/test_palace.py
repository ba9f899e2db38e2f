"""The palace over HTTP and as tools."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.mcp_client import connected
from support.stack import Stack, running_stack

from crew_journal.schemas.core.errors import InvalidEntry, InvalidQuery, NotFound, PalaceFull
from crew_journal.schemas.core.principal import Role
from crew_journal.services.palace import filing

DECISION = "We decided to use DuckDB because it needs no server; this approach is better than PostgreSQL."
PARSER = "The parser of the importer reads its file in one pass."


@pytest.fixture
async def palace(tmp_path: Path) -> AsyncIterator[Stack]:
    async with running_stack(tmp_path) as stack:
        yield stack


async def test_a_drawer_is_filed_once_found_by_its_words_deleted_and_filed_again(palace: Stack) -> None:
    async with palace.client((await palace.token(Role.AGENT, "acme", agent="ada")).plaintext) as ada:
        made = await ada.add_drawer("team", "storage", DECISION, source_file="notes/db.md")
        assert (made.added, made.memory_type) == (True, "decision")
        assert not (await ada.add_drawer("team", "storage", DECISION)).added
        await ada.add_drawer("team", "import", PARSER)
        found = await ada.palace_search("which database needs no server?")
        assert found.results[0].id == made.drawer_id
        assert found.results[0].content == DECISION
        assert 0 < found.results[0].similarity < 1
        assert (await ada.palace_search("DuckDB", room="import")).count == 0
        got = await ada.drawer(made.drawer_id)
        assert (got.importance, got.state, got.pipeline_tier, got.added_by) == (4.0, "raw", "llm", "ada")
        assert (await ada.delete_drawer(made.drawer_id)).deleted
        assert not (await ada.delete_drawer(made.drawer_id)).deleted
        assert (await ada.palace_search("DuckDB")).count == 0
        with pytest.raises(NotFound, match="no drawer"):
            await ada.drawer(made.drawer_id)
        again = await ada.add_drawer("team", "storage", DECISION)
        assert (again.added, again.drawer_id) == (True, made.drawer_id)
        assert (await ada.palace_search("DuckDB")).count == 1


async def test_no_workspace_sees_the_drawers_of_another(palace: Stack) -> None:
    async with palace.client() as owner:
        one = await owner.add_drawer("team", "storage", DECISION, workspace_id="one")
        two = await owner.add_drawer("team", "storage", DECISION, workspace_id="two")
        assert one.drawer_id == two.drawer_id
        assert two.added
        await owner.delete_drawer(one.drawer_id, workspace_id="one")
        assert (await owner.palace_status(workspace_id="one")).total_drawers == 0
        assert (await owner.palace_search("DuckDB", workspace_id="two")).count == 1


async def test_counts_are_of_live_drawers_by_wing_and_room(palace: Stack) -> None:
    async with palace.client() as owner:
        first = await owner.add_drawer("team", "storage", DECISION)
        await owner.add_drawer("team", "import", PARSER)
        await owner.add_drawer("user", "import", PARSER)
        status = await owner.palace_status()
        assert [(wing.wing, wing.count) for wing in status.wings] == [("team", 2), ("user", 1)]
        assert (await owner.palace_wings()).wings == status.wings
        assert {room.room for room in (await owner.palace_rooms(wing="user")).rooms} == {"import"}
        moved = await owner.update_drawer(first.drawer_id, wing="user", importance=1)
        assert (moved.wing, moved.room, moved.importance, moved.id) == ("user", "storage", 1.0, first.drawer_id)
        taxonomy = (await owner.palace_taxonomy()).taxonomy
        assert {wing: inside.rooms for wing, inside in taxonomy.items()} == {
            "team": {"import": 1},
            "user": {"import": 1, "storage": 1},
        }
        await owner.delete_drawer(first.drawer_id)
        restored = await owner.restore_drawer(first.drawer_id)
        assert (restored.live, restored.wing) == (True, "user")
        listed = await owner.drawers(limit=2)
        assert (len(listed.drawers), listed.total) == (2, 3)


async def test_numbers_out_of_range_are_moved_into_it_and_others_are_refused(palace: Stack) -> None:
    async with palace.client() as owner:
        for n in range(12):
            await owner.diary_write("ada", f"day {n} of the harvest")
            await owner.add_drawer("team", f"room{n}", f"{PARSER} Part {n}.")
        assert (await owner.diary_read("ada", last_n=101)).count == 12
        assert (await owner.diary_read("ada", last_n=0)).count == 10, "the default"
        everything = [drawer.id for drawer in (await owner.drawers()).drawers]
        assert [drawer.id for drawer in (await owner.drawers(limit=201, offset=-3)).drawers] == everything
        assert (await owner.drawers(offset=2_000_000)).drawers == ()
        assert len((await owner.palace_search("parser part", limit=51)).results) == 12
        assert len((await owner.palace_search("parser part", limit=-1)).results) == 5, "the default"
        assert "Part 11." in (await owner.palace_recall(limit=99)).text
        assert (await owner.traverse("room0", max_hops=9)).count == 12
        assert (await owner.traverse("room0", max_hops=-1)).count == 1
        with pytest.raises(InvalidQuery, match="last_n"):
            await owner.diary_read("ada", last_n="all")  # type: ignore[arg-type]  # what the service refuses


async def test_a_text_in_almost_the_same_words_is_a_duplicate(palace: Stack) -> None:
    async with palace.client() as owner:
        made = await owner.add_drawer("team", "import", PARSER)
        same = await owner.check_duplicate(PARSER.upper(), threshold=0)
        assert [(duplicate.id, duplicate.similarity) for duplicate in same.duplicates] == [(made.drawer_id, 1.0)]
        assert not (await owner.check_duplicate("The parser is slow on Mondays.")).has_duplicate


async def test_noise_and_drawers_beyond_the_limit_are_refused(palace: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    async with palace.client() as owner:
        with pytest.raises(InvalidEntry, match=r"entry is required and must not be blank .*not all blanks"):
            await owner.diary_write("ada", " \n")
        with pytest.raises(InvalidEntry, match="content is too short"):
            await owner.add_drawer("team", "storage", "sounds good!")
        with pytest.raises(InvalidEntry, match="10000"):
            await owner.add_drawer("team", "storage", "x" * 10_001)
        monkeypatch.setattr(filing, "MOST_DRAWERS", 1)
        await owner.add_drawer("team", "storage", "y" * 10_000)
        with pytest.raises(PalaceFull, match="has 1 drawers"):
            await owner.diary_write("Ada", "the palace is full")
        assert not (await owner.add_drawer("team", "storage", "y" * 10_000)).added


async def test_the_same_diary_entry_is_kept_twice_and_read_newest_first(palace: Stack) -> None:
    async with palace.client() as owner:
        for entry in ("tea", "tea", "coffee"):
            await owner.diary_write("Ada O'Neil", entry, topic="drinks")
        await owner.diary_write("Bob", "milk")
        read = await owner.diary_read("ada o'neil", last_n=2)
        assert [(entry.content, entry.hall) for entry in read.entries] == [
            ("coffee", "ada_oneil"),
            ("tea", "ada_oneil"),
        ]
        assert (await owner.diary_read("ada oneil")).count == 3


async def test_wake_up_shows_the_identity_and_the_most_important_drawers(palace: Stack) -> None:
    async with palace.client() as owner:
        assert "No memories yet." in (await owner.wake_up()).text
        await owner.set_identity("We build a parser.")
        await owner.set_identity("We build an importer.")
        await owner.add_drawer("team", "import", PARSER, source_file="a/b.md")
        woken = await owner.wake_up()
        assert woken.text.startswith("[PALACE IDENTITY]\nAbout this workspace, set by actor user ")
        assert "## Identity\nWe build an importer.\n[END PALACE IDENTITY]\n\n[PALACE MEMORY]\nUNTRUSTED" in woken.text
        [drawer] = (await owner.drawers()).drawers
        line = f"{drawer.author}: {PARSER}  (b.md)"
        assert woken.text.endswith(f"## Essential story\n[import]\n  - {line}\n[END PALACE MEMORY]")
        recalled = await owner.palace_recall(wing="team", room="import")
        assert recalled.text.endswith(f"[import] {line}\n[END PALACE DRAWERS]")


async def test_a_context_is_the_wake_up_and_the_newest_messages(palace: Stack) -> None:
    async with palace.client() as owner:
        assert (await owner.palace_context()).text == ""
        messages: list[dict[str, object]] = [
            {"role": "user", "text": "What do we build?"},
            {"role": "agent", "name": "Ada", "text": "quiet", "silent": True},
            {"role": "agent", "text": "An importer."},
        ]
        said = "## Recent messages\n**User**: What do we build?\n**Agent**: An importer."
        assert (await owner.palace_context(messages=messages)).text == said
        await owner.set_identity("We build an importer.")
        woken = await owner.wake_up()
        assert (await owner.palace_context(messages=messages)).text == f"{woken.text}\n\n{said}"


async def test_a_search_as_text_shows_the_scores_and_counts_as_access(palace: Stack) -> None:
    async with palace.client() as owner:
        made = await owner.add_drawer("team", "import", PARSER, source_file="a/b.md")
        [hit] = (await owner.palace_search("the parser", recipe="palace-seed")).results
        assert hit.score == pytest.approx(3.0 * 0.5 * hit.similarity, abs=1e-3)
        rendered = await owner.palace_render("importer reads")
        assert "\n## Search: importer reads\n1. [team/import] (" in rendered.text
        assert rendered.text.endswith(f") {hit.author}: {PARSER}  (b.md)\n[END PALACE DRAWERS]")
        assert (await owner.palace_render("zebra")).text == "No results for: zebra"
        assert rendered.receipt is not None
        await owner.receipt(rendered.receipt)
        later = await owner.remember("the receipts are in the journal before this")
        used = await owner.drawer(made.drawer_id, min_seq=later.seq)
        assert (used.access_count, used.entity_count, used.triple_count, used.retry_count) == (2, 0, 0, 0)


async def test_a_search_counts_as_access_once_its_receipt_is_folded(palace: Stack) -> None:
    async with palace.client() as owner:
        made = await owner.add_drawer("team", "import", PARSER)
        found = await owner.palace_search("parser")
        assert found.receipt is not None
        assert (await owner.receipt(found.receipt)).recipe == "palace"
        later = await owner.remember("the receipt is in the journal before this")
        used = await owner.drawer(made.drawer_id, min_seq=later.seq)
        assert used.access_count == 1
        assert used.last_accessed_at is not None


async def test_a_model_files_and_finds_a_drawer_by_the_tools_of_the_palace(palace: Stack) -> None:
    token = await palace.token(Role.AGENT, "acme", agent="ada")
    async with connected(palace, token.plaintext, tools="palace") as client:
        made = await client.call_tool(
            "memory_add_drawer",
            {"wing": "team", "room": "import", "content": PARSER, "description": "filing what was learned"},
        )
        assert not made.is_error
        found = await client.call_tool("memory_search", {"query": "importer", "limit": 1})
        assert [hit["content"] for hit in found.structured_content["results"]] == [PARSER]
        refused = await client.call_tool("memory_add_drawer", {"wing": "team", "room": "import", "content": "Hello."})
        assert refused.is_error
        assert "too short" in refused.content[0].text
        for wanted in ({}, {"agent_name": ""}):
            missing = await client.call_tool("memory_diary_read", wanted)
            assert missing.is_error
            assert "agent_name is required" in missing.content[0].text
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert listed["memory_search"].input_schema["properties"]["limit"]["maximum"] == 50
        blank = await client.call_tool("memory_search", {"query": "importer", "wing": "", "room": ""})
        assert blank.structured_content["count"] == 1
        written = await client.call_tool("memory_diary_write", {"agent_name": "ada", "entry": "tea", "topic": ""})
        assert not written.is_error

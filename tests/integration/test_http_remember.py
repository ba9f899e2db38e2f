"""``remember`` over HTTP, against a real broker and real views."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from support.stack import Stack

from crew_journal.schemas.core.errors import EntryConflict, InvalidEntry, InvalidRequest, NotAllowed
from crew_journal.schemas.core.principal import Role
from crew_journal.schemas.models.rules import is_embedded


async def test_what_an_agent_remembers_is_its_entry_and_recall_finds_it(stack: Stack) -> None:
    token = await stack.token(Role.AGENT, "rem", agent="ada", crew="red")
    async with stack.client(token.plaintext) as client:
        old = await client.remember("Maria drinks tea")
        new = await client.remember(
            "Maria drinks coffee now",
            kind="preference",
            about="Maria",
            aliases=("espresso", "flat white"),
            supersedes=(old.entry_id,),
            valid_at=datetime(2026, 11, 1, tzinfo=UTC),
            data_subject_id="maria",
        )
        entry = await client.get(new.entry_id, min_seq=new.seq)
        assert (entry.entry_type, entry.agent_id, entry.crew_id) == ("memory.remembered", "ada", "red")
        assert (entry.actor_type, entry.actor_id, entry.summary) == ("agent", "ada", "Maria drinks coffee now")
        assert entry.payload == {"kind": "preference", "about": "Maria", "aliases": ["espresso", "flat white"]}
        assert (entry.supersedes, entry.data_subject_id) == ((old.entry_id,), "maria")
        assert is_embedded(entry.entry_type, "info", entry.payload, entry.refs)
        hits = (await client.recall("flat white", min_seq=new.seq)).hits
        assert [hit.entry_id for hit in hits] == [new.entry_id]


async def test_a_text_that_no_summary_can_hold_is_kept_whole_and_searched_whole(stack: Stack) -> None:
    text = "Deploys:\n- never on Fridays\n" + "and so on " * 300 + "the vault opens at nine"
    async with stack.client() as client:
        made = await client.remember(f"  {text}\n", workspace_id="rem-long", agent_id="ada")
        entry = await client.get(made.entry_id, workspace_id="rem-long", min_seq=made.seq)
        assert entry.payload == {"text": text}
        assert (len(entry.summary), entry.summary[:28]) == (2_000, "Deploys: - never on Fridays ")
        (hit,) = (await client.recall("when does the vault open", workspace_id="rem-long", min_seq=made.seq)).hits
        assert hit.entry_id == made.entry_id


async def test_the_same_id_and_text_again_store_nothing(stack: Stack) -> None:
    async with stack.client() as client:
        first = await client.remember("the key is under the mat", entry_id="key", workspace_id="rem-twice")
        again = await client.remember("the key is under the mat", entry_id="key", workspace_id="rem-twice")
        assert (again.seq, first.duplicate, again.duplicate) == (first.seq, False, True)
        with pytest.raises(EntryConflict):
            await client.remember("the key is gone", entry_id="key", workspace_id="rem-twice")


async def test_wrong_fields_are_named_and_another_agent_is_refused(stack: Stack) -> None:
    token = await stack.token(Role.AGENT, "rem", agent="ada")
    async with stack.client(token.plaintext) as client:
        with pytest.raises((InvalidEntry, InvalidRequest)) as wrong:
            await client.remember(" ", kind="", supersedes=("not an id",))
        assert {problem.field.partition(".")[0] for problem in wrong.value.problems} == {"text", "kind", "supersedes"}
        with pytest.raises(NotAllowed) as refused:
            await client.remember("a secret", agent_id="bob")
        assert refused.value.field == "agent_id"

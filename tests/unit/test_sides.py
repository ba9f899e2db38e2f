"""Whose a turn is: an index read from the views and one that grew commit by commit say the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.events import at, entry
from support.recall import extend_by
from support.views import node

from crew_journal.consumers.discovery import discover_projections
from crew_journal.schemas.core.envelope import EntryRecorded
from crew_journal.schemas.decode import decode
from crew_journal.services.index.documents import USERS
from crew_journal.services.index.entry_index import HotIndex
from crew_journal.services.index.take import load
from crew_journal.services.index.vectors import VectorMatrix

SAID = [
    ("peer.conversation", "user", "Maria", True),
    ("peer.conversation", "agent", "ada", False),
    ("peer.conversation", "user", "assistant", False),
    ("peer.conversation", "agent", "user", True),
    ("peer.conversation", "user", None, True),
    ("chat.user_message", "agent", None, True),
    ("chat.agent_response", "user", "Maria", False),
    ("message.sent", "agent", None, False),
]


async def test_loaded_or_extended_an_index_knows_the_users_turns(tmp_path: Path) -> None:
    messages = []
    for seq, (kind, by, who, _) in enumerate(SAID, 1):
        actor: dict[str, Any] = {} if who is None else {"actor_id": who}
        messages.append(at(seq, entry(f"e{seq}", entry_type=kind, actor_type=by, **actor)))
    async with node(tmp_path / "views.duckdb", discover_projections()) as made:
        await made.host.fold(messages)
        loaded = load(made.store, "w1")
    grown = HotIndex("w1", VectorMatrix("m"))
    for message in messages:
        event = decode(message.seq, message.subject, message.headers, message.data, message.published_ms)
        assert isinstance(event, EntryRecorded)
        extend_by(grown, [event])
    for index in (loaded, grown):
        assert [bool(flags & USERS) for flags in index.documents.flags.tolist()] == [one[-1] for one in SAID]

"""What is salvaged is the entry that was lost, in a form that ``import`` takes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from support.journal import OWNER
from support.old_journal import messages
from support.views import MEMORY_MB, node, source_of

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.consumers.host.salvage import salvage
from crew_journal.schemas.catalogue import info_of
from crew_journal.schemas.core.envelope import EntryRecorded
from crew_journal.schemas.core.ids import is_workspace
from crew_journal.schemas.core.payload import PublisherKind
from crew_journal.schemas.decode import decode
from crew_journal.services.journal.intake.submission import accept

LATER = datetime(2027, 1, 1, tzinfo=UTC)
GOLDEN = Path(__file__).parents[1] / "golden" / "events"


def _superseding(seq: int) -> RawMessage:
    golden = json.loads((GOLDEN / "entry.superseding.v1.json").read_text("utf-8"))
    return RawMessage(seq, golden["subject"], golden["headers"], json.dumps(golden["body"]).encode(), 1_795_338_500_000)


async def test_every_entry_of_an_old_journal_and_one_with_every_field_is_submitted_again_as_it_was(
    tmp_path: Path,
) -> None:
    stream = messages()
    stream.append(_superseding(stream[-1].seq + 1))
    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        await live.host.fold(stream)
        parked = {seq for _, _, seq in live.dead.names()}
        found = [one async for one in salvage(live.host, source_of([]), memory_mb=MEMORY_MB)]
    salvaged = {record["id"]: accept(OWNER, record, LATER) for control, record in found if not control}
    events = [
        decode(message.seq, message.subject, message.headers or {}, message.data, message.published_ms)
        for message in stream
        if message.seq not in parked
    ]
    entries = [event for event in events if isinstance(event, EntryRecorded) and is_workspace(event.workspace_id)]
    agents = {entry.entry.id: entry.entry for entry in entries if not entry.control}
    reserved = {name for name, entry in agents.items() if info_of(entry.entry_type).publisher is PublisherKind.RESERVED}
    assert "skill.proposed" in {agents[name].entry_type for name in reserved}
    assert {name: salvaged[name].entry for name in agents.keys() - reserved} == {
        name: entry for name, entry in agents.items() if name not in reserved
    }
    assert {record["id"] for control, record in found if control} >= reserved, "listed, and not refused by the import"
    decided = {entry.entry.id for entry in entries if entry.control}
    assert {record["id"] for control, record in found if control} >= decided - salvaged.keys()

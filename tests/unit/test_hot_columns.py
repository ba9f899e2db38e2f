"""A column that is declared hot is found in the index after a load and after a commit, without a line in any reader."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple, get_type_hints

import pytest
from support.events import at, entry
from support.views import node

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.entries.turns_fold import TurnsProjection, batch_turns, blobs
from crew_journal.consumers.projection import Batch, FoldTransaction
from crew_journal.schemas import tables as views
from crew_journal.schemas.core.table import Hot, Table, Tables
from crew_journal.schemas.entries.tables import TURNS, TurnRow
from crew_journal.services.index.cache import HotCache
from crew_journal.services.index.entry_index import HotIndex
from crew_journal.services.index.entry_slot import EntryIndexes
from crew_journal.services.index.take import load

HINTS = get_type_hints(TurnRow, include_extras=True)
TonedRow = NamedTuple("TonedRow", [*HINTS.items(), ("tone", Annotated[int, "UTINYINT", Hot("uint8", missing=99)])])  # type: ignore[misc]  # a column more than ``TurnRow``
TONED = Table(TURNS.name, TonedRow, TURNS.view, document=TURNS.document)


class TonedTurns(TurnsProjection):
    """Folds a column more: how often a turn raises its voice."""

    tables: ClassVar[Tables] = (TONED,)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        columns = batch_turns(batch) if batch.entries else None
        if columns is not None:
            said = {event.seq: event.entry.summary.count("!") for event in batch.entries}
            tx.insert(
                TONED,
                {
                    **{name: columns[name] for name in ("ws", "doc", "flags", "first_passage")},
                    "pieces": blobs(columns["pieces"], columns["piece_ends"]),
                    "days": blobs(columns["days"], columns["day_ends"]),
                    "tone": [said[doc] for doc in columns["doc"].tolist()],
                },
            )


def tones(index: HotIndex) -> list[int]:
    found: list[int] = index.tables["conversation_turns"].columns["tone"].rows.tolist()
    return found


async def test_a_new_hot_column_is_there_after_a_load_and_after_a_commit_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "TABLES", (*(table for table in views.TABLES if table.name != TONED.name), TONED))
    projections = [TonedTurns() if one.name == "turns" else one for one in discover_projections()]
    said = ["No", "No!", "what was done", "No!!", "Yes!"]
    kinds = ["chat.user_message", "chat.user_message", "peer.escalation", "chat.user_message", "chat.user_message"]
    stream = [
        at(seq, entry(f"e{seq}", summary=text, entry_type=kind, workspace=f"w{1 + (seq == 5)}"))
        for seq, (text, kind) in enumerate(zip(said, kinds, strict=True), 1)
    ]
    async with node(tmp_path / "v.duckdb", projections) as made:
        await made.host.fold(stream[:1])
        hot = HotCache(made.store, 1 << 26)
        cache = EntryIndexes(hot)
        followed = await cache.get("w1")
        assert tones(followed) == [0]
        for message in stream[1:]:
            await made.host.fold([message])
        assert await cache.get("w1") is followed
        assert tones(followed) == tones(load(made.store, "w1")) == [0, 1, 99, 2]
        hot.close()

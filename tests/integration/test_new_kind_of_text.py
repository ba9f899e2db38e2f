"""A kind of text that no family has, a ticket: a fold and a declaration, and its texts are asked for and embedded."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from Stemmer import Stemmer
from support import folded_journal
from support.embedding import until
from support.memory_node import SWIFT_CHUNKS, WORKSPACE, Themes, memory_node

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.folds.words import chunk_terms
from crew_journal.consumers.models.missing_reactor import EmbedChunksReactor
from crew_journal.consumers.models.missing_rows import missing_texts
from crew_journal.consumers.projection import Batch, FoldTransaction
from crew_journal.schemas.core.envelope import EntryRecorded
from crew_journal.schemas.core.ids import hash64, name_key
from crew_journal.schemas.core.table import Tables
from crew_journal.schemas.core.texts import HIDDEN, WORKSPACE_OWNER, TextKind, TextRow, text_table
from crew_journal.schemas.text.analyzer import Analyzer
from crew_journal.schemas.texts import TEXT_KINDS
from crew_journal.services.journal.broker.broker import ManagedBroker

TICKET_TEXTS = text_table("ticket_texts", "tickets")
TICKET = TextKind("ticket", TICKET_TEXTS)
EMBEDDED = """SELECT item FROM ticket_texts JOIN memory_chunk_vectors USING (workspace_id, text_hash)
    WHERE dim > 0 ORDER BY item"""


class TicketsProjection:
    """Folds entries that name a ticket; of a closed one the text is hidden."""

    name: ClassVar = "tickets"
    version: ClassVar = 1
    tables: ClassVar[Tables] = (TICKET_TEXTS,)
    folds: ClassVar = (EntryRecorded,)

    def __init__(self) -> None:
        self._analyzer = Analyzer(Stemmer)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        rows = {
            event.entry.payload["ticket"]: self._row(event)
            for event in batch.entries
            if "ticket" in event.entry.payload
        }
        tx.replace(TICKET_TEXTS, list(rows.values()))

    def _row(self, event: EntryRecorded) -> TextRow:
        entry, number = event.entry, str(event.entry.payload["ticket"])
        return TextRow(
            name_key((event.workspace_id, number)),
            event.workspace_id,
            WORKSPACE_OWNER,
            number,
            entry.summary,
            hash64(f"Ticket {number}\n{entry.summary}"),
            *chunk_terms(self._analyzer, entry.summary),
            entry.id,
            event.ts_ms,
            event.seq,
            label=f"Ticket {number}",
            flags=HIDDEN if entry.payload.get("closed") else 0,
        )


class EmbedTicketsReactor(EmbedChunksReactor):
    """The reactor of texts, with one kind more."""

    filter_subjects = (*EmbedChunksReactor.filter_subjects, "journal.>")
    needs = (*EmbedChunksReactor.needs, "tickets")
    kinds = (*TEXT_KINDS, TICKET)


async def test_texts_of_a_new_kind_are_asked_for_and_embedded_unless_they_are_hidden(
    broker: ManagedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folded_journal, "discover_projections", lambda: [*discover_projections(), TicketsProjection()])
    themes = Themes()
    async with memory_node(broker, themes, tmp_path) as live:
        await live.append("t1", "the disk is full", payload={"ticket": "T-1"})
        seq = await live.append("t2", "the queue is slow", payload={"ticket": "T-2", "closed": True})
        await live.caught_up(seq)
        kinds = EmbedTicketsReactor.kinds
        [missing] = missing_texts(live.store, WORKSPACE, themes.model_id, -1, kinds)
        assert (missing.text, missing.source_id) == ("Ticket T-1\nthe disk is full", "t1")
        await live.react(EmbedTicketsReactor, limits=SWIFT_CHUNKS)

        async def vectors() -> list[Any]:
            return live.store.rows(EMBEDDED)

        await until(vectors, "the vector of a ticket")
        assert await vectors() == [("T-1",)]
        await live.append("t3", "the queue is slow", payload={"ticket": "T-2"})

        async def both() -> bool:
            return await vectors() == [("T-1",), ("T-2",)]

        await until(both, "the vector of the ticket that was opened again")
        assert missing_texts(live.store, WORKSPACE, themes.model_id, -1, kinds) == []
        assert sorted(themes.asked) == ["Ticket T-1\nthe disk is full", "Ticket T-2\nthe queue is slow"]

"""A reindex, folded: tombstones are forgotten where it was asked, in any batching, and vectors stay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from support.events import at, control, entry, vector
from support.views import node

from crew_journal.consumers.discovery import discover_projections
from crew_journal.schemas.events.control import ReindexRequested
from crew_journal.schemas.events.derived import OutgoingMessage

ROWS = "SELECT workspace_id, entry_id, model, dim FROM journal_embeddings ORDER BY ALL"


def reindex(name: str = "r1", model: str | None = None) -> OutgoingMessage:
    return control(ReindexRequested(policy=1, model=model), name, workspace="w1")


async def rows(path: Path, messages: Sequence[OutgoingMessage], batch: int) -> tuple[list[tuple], dict[str, str]]:
    stream = [at(seq, message) for seq, message in enumerate(messages, 1)]
    async with node(path / "views.duckdb", discover_projections()) as live:
        for start in range(0, len(stream), batch):
            await live.host.fold(stream[start : start + batch])
        assert live.dead.names() == set()
        return live.store.rows(ROWS), live.digests()


@pytest.mark.parametrize(
    ("model", "kept"),
    [(None, [("w1", "e2", "mini", 4)]), ("mini", [("w1", "e1", "nomic", 0), ("w1", "e2", "mini", 4)])],
)
async def test_tombstones_of_the_workspace_go_and_all_else_stays(
    tmp_path: Path, model: str | None, kept: list[tuple]
) -> None:
    """Contract §3 [TRAP]: a tombstone is permanent there."""
    messages = [
        entry("e1", entry_type="peer.escalation"),
        entry("e2", entry_type="peer.escalation"),
        entry("e1", workspace="w2", entry_type="peer.escalation"),
        vector("e1", dim=0),
        vector("e1", dim=0, model="nomic"),
        vector("e2", entry_seq=2),
        vector("e1", entry_seq=3, workspace="w2", dim=0),
        reindex(model=model),
    ]
    found, digests = await rows(tmp_path / "whole", messages, len(messages))
    assert found == [*kept, ("w2", "e1", "mini", 0)]
    assert (await rows(tmp_path / "single", messages, 1)) == (found, digests)


async def test_a_vector_that_a_tombstone_had_replaced_does_not_come_back(tmp_path: Path) -> None:
    messages = [entry("e1", entry_type="peer.escalation"), vector("e1"), vector("e1", dim=0), reindex(), reindex("r2")]
    for batch in (1, 2, len(messages)):
        found, _ = await rows(tmp_path / str(batch), messages, batch)
        assert found == []


async def test_a_text_refused_again_after_the_reindex_has_its_tombstone_again(tmp_path: Path) -> None:
    messages = [entry("e1", entry_type="peer.escalation"), vector("e1", dim=0), reindex(), vector("e1", dim=0)]
    for batch in (1, len(messages)):
        found, _ = await rows(tmp_path / str(batch), messages, batch)
        assert found == [("w1", "e1", "mini", 0)]

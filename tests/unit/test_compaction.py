"""Compaction: which entries an event names, and what its folds move and delete."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from pydantic import ValidationError
from support.events import EPOCH_MS, at, control, entry, link
from support.views import Node, node

from crew_journal.consumers.entries.fold import EntriesProjection
from crew_journal.consumers.entries.fulltext_fold import FulltextProjection
from crew_journal.consumers.entries.reactor import Bucket, compacted
from crew_journal.consumers.relations.fold import RelationsProjection
from crew_journal.schemas.catalogue import info_of
from crew_journal.schemas.core.derived import OutgoingMessage
from crew_journal.schemas.entries.events import PART_ENTRIES, MemoryCompacted
from crew_journal.schemas.entries.rules import PAYLOAD_CHARS, SUMMARY_CHARS, TYPES
from crew_journal.schemas.entries.tables import ARCHIVED
from crew_journal.schemas.models.rules import POLICIES

NOISE = "exec.output_chunk"
BUCKET = Bucket("c1", EPOCH_MS // 86_400_000, NOISE, 2)


def compaction(*seqs: int, entry_type: str = NOISE) -> OutgoingMessage:
    """The event that archives entries of workspace w1."""
    bucket = Bucket("c1", BUCKET.day, entry_type, len(seqs))
    [said] = compacted(bucket, [(seq, EPOCH_MS + seq, 300, 10) for seq in seqs], EPOCH_MS + 1_000)
    return control(said, "bucket", workspace="w1")


async def fold(path: Path, messages: Sequence[OutgoingMessage], batch: int) -> tuple[dict[str, str], dict[str, list]]:
    """Digests, and rows of interest, after folding in batches of a size."""
    stream = [at(seq, message) for seq, message in enumerate(messages, 1)]
    async with node(path, [EntriesProjection(), FulltextProjection(), RelationsProjection()]) as live:
        for first in range(0, len(stream), batch):
            await live.host.fold(stream[first : first + batch])
        return live.digests(), _rows(live)


def _rows(live: Node) -> dict[str, list]:
    postings = (
        "SELECT DISTINCT doc FROM (SELECT doc FROM postings UNION ALL SELECT doc FROM postings_tail) ORDER BY doc"
    )
    return {
        "live": [seq for (seq,) in live.store.rows("SELECT seq FROM journal_entries ORDER BY seq")],
        "archived": [
            ARCHIVED.row(*row) for row in live.store.rows(f"SELECT {ARCHIVED.names} FROM {ARCHIVED} ORDER BY seq")
        ],
        "postings": [doc for (doc,) in live.store.rows(postings)],
        "edges": live.store.rows("SELECT src_seq, dst_seq FROM memory_relations ORDER BY ALL"),
        "parked": sorted(live.dead.names()),
    }


JOURNAL = [
    entry("e1", entry_type=NOISE, summary="s" * 300, payload={"data": "p" * 900, "run_id": "r1"}),
    entry("e2", entry_type=NOISE, summary="short", payload={"data": "kept"}),
    entry("e3", entry_type="run.completed"),
    entry("e4", entry_type=NOISE, workspace="w2"),
    link("e3", "e1", src_seq=3, dst_seq=1),
    compaction(1, 2),
    entry("e5", entry_type=NOISE),
]


@pytest.mark.parametrize("batch", [1, 3, 100])
async def test_named_entries_move_to_the_archive_with_the_beginning_of_their_text(tmp_path: Path, batch: int) -> None:
    digests, rows = await fold(tmp_path / "a.duckdb", JOURNAL, batch)
    assert rows["live"] == [3, 4, 6, 7]
    first, second = rows["archived"]
    assert (first.seq, first.id, first.run_id, first.bucket_id) == (1, "e1", "r1", "bucket")
    assert first.summary == "s" * SUMMARY_CHARS
    assert first.payload == ('{"data":"' + "p" * 900)[:PAYLOAD_CHARS]
    assert (second.summary, second.payload) == ("short", '{"data":"kept"}')
    assert {row.archived_ms for row in rows["archived"]} == {EPOCH_MS + 60}
    assert rows["postings"] == [3, 4, 6, 7]
    assert rows["edges"] == []
    assert not rows["parked"]
    assert digests == (await fold(tmp_path / "b.duckdb", JOURNAL, 2))[0], "however the stream is cut"


async def test_the_same_compaction_twice_archives_once(tmp_path: Path) -> None:
    again = control(compaction_payload(1, 2), "bucket2", workspace="w1")
    _, rows = await fold(tmp_path / "v.duckdb", [*JOURNAL, again], 100)
    assert [(row.seq, row.bucket_id) for row in rows["archived"]] == [(1, "bucket"), (2, "bucket")]


def compaction_payload(*seqs: int) -> MemoryCompacted:
    return compacted(BUCKET, [(seq, EPOCH_MS, 300, 10) for seq in seqs], EPOCH_MS)[0]


async def test_entries_of_another_type_or_workspace_stay_in_the_journal(tmp_path: Path) -> None:
    _, rows = await fold(tmp_path / "v.duckdb", [*JOURNAL[:4], compaction(2, 3, 4)], 100)
    assert rows["live"] == [1, 3, 4, 5]
    assert [row.seq for row in rows["archived"]] == [2]


async def test_a_compaction_that_is_not_valid_is_parked_by_every_view_and_archives_nothing(tmp_path: Path) -> None:
    wrong = control(
        {"entry_type": NOISE, "entries": {"sequences": "1-2"}}, "b", entry_type="memory.compacted", workspace="w1"
    )
    _, rows = await fold(tmp_path / "v.duckdb", [*JOURNAL[:2], wrong, compaction(1, 9)], 100)
    assert rows["archived"] == []
    assert {(name, seq) for name, _, seq in rows["parked"]} == {
        (name, seq) for name in ("entries", "fulltext", "relations") for seq in (3, 4)
    }
    assert set(rows["postings"]) >= {1, 2}


def test_a_large_bucket_is_split_into_parts_each_with_its_own_figures() -> None:
    members = [(seq, EPOCH_MS + seq, 100, 1) for seq in range(2, 2 * (PART_ENTRIES + 10) + 1, 2)]
    one, other = compacted(BUCKET, members, EPOCH_MS)
    assert (one.part, one.parts, other.part, other.parts) == (1, 2, 2, 2)
    assert (one.count, other.count) == (PART_ENTRIES, 10)
    assert (one.bytes_sum, other.bytes_freed) == (100 * PART_ENTRIES, 10)
    assert one.entries.ranges[-1] < other.entries.ranges[0]


def test_the_sequences_of_the_largest_part_fit_into_an_event() -> None:
    first = 10**12
    [said] = compacted(BUCKET, [(first + 2 * n, 0, 0, 0) for n in range(PART_ENTRIES)], 0)
    assert len(said.entries.ranges) == PART_ENTRIES


def test_a_count_that_is_not_that_of_the_sequences_is_refused() -> None:
    said = compaction_payload(1, 2).model_dump(mode="json")
    with pytest.raises(ValidationError, match="number of sequences"):
        MemoryCompacted.model_validate({**said, "count": 3})


@pytest.mark.parametrize("entry_type", TYPES)
def test_what_is_archived_is_in_no_hot_index_and_has_no_vector(entry_type: str) -> None:
    info = info_of(entry_type)
    assert info.noise
    assert not info.conversation
    assert all(entry_type not in policy.types for policy in POLICIES.values())

"""The vector of a late repeat never takes the place of the first one's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.events import at, entry

from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.consumers.host.admission import IdentityIndex
from crew_journal.consumers.host.folding import prepare
from crew_journal.schemas.core.derived import encode_vector
from crew_journal.schemas.core.envelope import VectorDerived
from crew_journal.schemas.core.headers import MSG_ID

VECTOR = VectorDerived(
    seq=0,
    workspace_id="w1",
    entry_id="e1",
    entry_seq=1,
    model="m",
    dim=1,
    vector=b"\x00\x00\x80?",
    text_hash="ab" * 16,
    entry_type="peer.escalation",
    severity="info",
    priority="normal",
    crew_id=None,
    agent_id=None,
    ts_ms=1_795_000_000_000,
    published_ms=0,
    reactor="embed@1",
)
OF_FIRST = encode_vector(VECTOR, 1)
OF_REPEAT = encode_vector(replace(VECTOR, entry_seq=2), 1)
TOMBSTONE = encode_vector(replace(VECTOR, dim=0, vector=b""), 1)


def folded_facts(messages: list[RawMessage], index: IdentityIndex) -> list[tuple[int, int]]:
    prepared = prepare(messages, index, messages[0].seq, messages[-1].seq)
    return [(event.seq, event.entry_seq) for event in prepared.events if isinstance(event, VectorDerived)]


@pytest.mark.parametrize("facts", [(OF_FIRST, OF_REPEAT), (OF_REPEAT, OF_FIRST)], ids=["first-last", "repeat-first"])
def test_only_the_fact_of_the_first_entry_with_an_id_is_folded(facts: tuple) -> None:
    messages = [at(1, entry("e1")), at(2, entry("e1", summary="another story")), at(3, facts[0]), at(4, facts[1])]
    assert [cause for _, cause in folded_facts(messages, IdentityIndex())] == [1]


def test_the_verdict_does_not_depend_on_how_far_the_index_is_or_how_batches_are_cut() -> None:
    messages = [at(2, OF_FIRST), at(3, entry("e1")), at(4, encode_vector(replace(VECTOR, entry_seq=3), 1))]
    fresh = IdentityIndex()
    whole = folded_facts(messages, fresh)
    assert whole == folded_facts(messages, fresh), "the index is ahead the second time"
    cut = IdentityIndex()
    assert whole == [fact for message in messages for fact in folded_facts([message], cut)]


def test_facts_of_two_causes_and_a_tombstone_have_ids_of_their_own() -> None:
    ids = {fact.headers[MSG_ID] for fact in (OF_FIRST, OF_REPEAT, TOMBSTONE)}
    assert len(ids) == 3
    assert encode_vector(VECTOR, 1).headers[MSG_ID] in ids, "deterministic"

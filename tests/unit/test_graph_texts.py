"""Facts and entities in words: whatever happens in whatever batches, they say what the rows of the graph say."""

from __future__ import annotations

from typing import Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from Stemmer import Stemmer
from support.events import at, control
from support.views import Node, node

from crew_journal.consumers.facts.fold import FactsProjection
from crew_journal.schemas.core.derived import OutgoingMessage
from crew_journal.schemas.core.ids import hash64
from crew_journal.schemas.core.payload import ControlPayload
from crew_journal.schemas.facts.events import EntityNamed, FactAsserted, FactEnded, FactEntity
from crew_journal.schemas.palace.events import DrawerDeleted, DrawerRestored
from crew_journal.schemas.text.analyzer import Analyzer

NAMES: Final = ("Ada", "Billing", "Cache", "Disk", "Edge")
IDS: Final = st.sampled_from([f"e{n}" for n in range(5)])
ENTITIES: Final = st.builds(
    FactEntity, entity_id=IDS, name=st.sampled_from(NAMES), type=st.sampled_from(["entity", "server"])
)
EVENTS: Final[st.SearchStrategy[ControlPayload]] = st.one_of(
    st.builds(
        FactAsserted,
        fact_id=st.sampled_from([f"t{n}" for n in range(8)]),
        subject=ENTITIES,
        predicate=st.sampled_from(["hosts", "is"]),
        object=ENTITIES,
        text=st.sampled_from([None, "the disk is full"]),
        valid_to=st.sampled_from([None, None, None, "2026-11-01"]),
        source_drawer_id=st.sampled_from([None, "d1"]),
    ),
    st.builds(FactEnded, fact_ids=st.tuples(st.sampled_from([f"t{n}" for n in range(8)])), ended=st.just("2026-11-02")),
    st.builds(
        EntityNamed,
        entity=ENTITIES,
        aliases=st.lists(ENTITIES, max_size=2).map(tuple),
        dropped_aliases=st.lists(ENTITIES, max_size=1).map(tuple),
    ),
    st.builds(DrawerDeleted, drawer_id=st.just("d1")),
    st.builds(DrawerRestored, drawer_id=st.just("d1")),
)
_KNOWN: Final = """WITH known AS (FROM kg_entities WHERE until_seq IS NULL),
    named AS (SELECT e.entity_id, coalesce(r.entity_id, e.entity_id) AS root, coalesce(r.name, e.name) AS meant, e.name
        FROM known e LEFT JOIN known r ON r.entity_id = e.alias_of)"""
FACTS_IN_WORDS: Final = f"""{_KNOWN} SELECT f.fact_id, coalesce(f.text, s.name || ' ' || predicate || ' ' || o.name),
        s.meant || ' ' || predicate || ' ' || o.meant || ' ' || coalesce(f.text, ''), f.from_ms, f.to_ms
    FROM kg_facts f JOIN named s ON s.entity_id = f.subject_id JOIN named o ON o.entity_id = f.object_id
    WHERE f.until_seq IS NULL ORDER BY f.fact_id"""
ENTITIES_IN_WORDS: Final = f"""{_KNOWN},
    said AS (SELECT s.root AS subject, o.root AS object, s.meant || ' ' || predicate || ' ' || o.meant AS words, asserted_seq
        FROM kg_facts f JOIN named s ON s.entity_id = f.subject_id JOIN named o ON o.entity_id = f.object_id
        WHERE f.until_seq IS NULL AND valid_to IS NULL),
    about AS (SELECT subject AS root, words, asserted_seq FROM said UNION ALL SELECT object, words, asserted_seq FROM said),
    first AS (SELECT root, arg_min(words, asserted_seq) AS words FROM about GROUP BY root),
    also AS (SELECT alias_of, list_sort(list(name)) AS names FROM known WHERE alias_of IS NOT NULL GROUP BY alias_of)
    SELECT e.entity_id, e.name, e.type, coalesce(also.names, []), coalesce(first.words, ''), 'n' || e.since_seq
    FROM known e LEFT JOIN first ON first.root = e.entity_id LEFT JOIN also ON also.alias_of = e.entity_id
    WHERE e.alias_of IS NULL ORDER BY e.entity_id"""
"""The text of an entity, made of the whole graph."""


def in_words(name: str, kind: str, aliases: list[str], fact: str) -> str:
    typed = name if kind == "entity" else f"{name} ({kind})"
    return ". ".join(part for part in (", ".join((typed, *aliases)), fact) if part)


def asserted_hashes(events: list[ControlPayload]) -> dict[str, int]:
    """Fact → the hash of the words in which it was first asserted."""
    hashes: dict[str, int] = {}
    for said in events:
        if isinstance(said, FactAsserted):
            words = said.text or f"{said.subject.name} {said.predicate} {said.object.name}"
            hashes.setdefault(said.fact_id, hash64(words))
    return hashes


def check(live: Node, folded: list[ControlPayload]) -> None:
    analyzer = Analyzer(Stemmer)
    facts = live.store.rows("SELECT item, text, terms, from_ms, to_ms, text_hash FROM fact_texts ORDER BY item")
    wanted = live.store.rows(FACTS_IN_WORDS)
    assert [(row[0], row[1], *row[3:5]) for row in facts] == [(row[0], row[1], *row[3:]) for row in wanted]
    assert {row[0]: row[5] for row in facts} == asserted_hashes(folded)
    for row, known in zip(facts, wanted, strict=True):
        terms = {*analyzer.terms(known[2]), *analyzer.further_terms(known[2])}
        assert np.frombuffer(row[2], "<u8").tolist() == sorted(terms)
    texts = [(row[0], in_words(*row[1:5]), row[5]) for row in live.store.rows(ENTITIES_IN_WORDS)]
    entities = live.store.rows("SELECT item, text, source_id FROM entity_texts ORDER BY item")
    assert entities == texts
    hashes = live.store.rows("SELECT text_hash FROM entity_texts ORDER BY item")
    assert [number for (number,) in hashes] == [hash64(text) for _, text, _ in texts]


@settings(max_examples=settings.default.max_examples // 2, suppress_health_check=list(HealthCheck), deadline=None)
@given(events=st.lists(EVENTS, min_size=1, max_size=14), cuts=st.lists(st.integers(1, 5), max_size=8))
async def test_texts_of_the_graph_are_those_of_its_rows_in_any_batching(
    tmp_path_factory: pytest.TempPathFactory, events: list[ControlPayload], cuts: list[int]
) -> None:
    stream = [at(seq, message(payload, seq)) for seq, payload in enumerate(events, 1)]
    async with node(tmp_path_factory.mktemp("graph") / "v.duckdb", [FactsProjection()]) as live:
        rest = stream
        for size in [*cuts, len(stream)]:
            if rest:
                await live.host.fold(rest[:size])
                check(live, events[: len(stream) - len(rest[size:])])
            rest = rest[size:]
        assert not live.dead.parked
        cut = rows_of(live)
    async with node(tmp_path_factory.mktemp("whole") / "v.duckdb", [FactsProjection()]) as live:
        await live.host.fold(stream)
        assert rows_of(live) == cut


def message(payload: ControlPayload, seq: int) -> OutgoingMessage:
    actor = "system" if isinstance(payload, FactAsserted) else "user"
    return control(payload, f"n{seq}", workspace="w1", actor_type=actor)


def rows_of(live: Node) -> list[object]:
    return [row for table in ("fact_texts", "entity_texts") for row in live.store.rows(f"FROM {table} ORDER BY item")]

"""The view of lineage: both ways from a memory, who was given it, and exactly the notices of a model."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.events import EPOCH_MS, at, control, document, entry, link, vector
from support.strategies import journals
from support.views import Node as LiveNode
from support.views import node

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.entries.fold import EntriesProjection
from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.consumers.lineage.fold import LineageProjection
from crew_journal.consumers.models.vectors_fold import VectorsProjection
from crew_journal.schemas.core.derived import OutgoingMessage
from crew_journal.schemas.core.envelope import Event
from crew_journal.schemas.core.sequence_set import SequenceSet
from crew_journal.schemas.core.table import Table
from crew_journal.schemas.decode import decode
from crew_journal.schemas.entries.events import ErasureScoped
from crew_journal.schemas.erasure.lineage import names_of, sources_of
from crew_journal.schemas.facts.events import FactEnded
from crew_journal.schemas.lineage.events import NoticesGiven
from crew_journal.schemas.lineage.operations import LineageAnswer, LineageRequest, WhoSawRequest
from crew_journal.schemas.palace.events import DrawerDeleted
from crew_journal.schemas.recall.events import MemorySearched
from crew_journal.schemas.standing.events import RetractionMade
from crew_journal.services.desk import Caller
from crew_journal.services.lineage.use_cases import Lineages
from crew_journal.services.node import Node

WORKSPACE = "w1"
RUNS, MEMORIES, CHANGED = 200, 100, 20
CALLER = cast(Caller, SimpleNamespace(workspace_id=WORKSPACE))


def searched(name: str, agent: str, run: str, hits: Sequence[str], view_seq: int | None = None) -> OutgoingMessage:
    payload = MemorySearched(
        query="q", scope="own", recipe="robust", hit_ids=tuple(hits), asked_by="t1", view_seq=view_seq
    )
    return entry(
        name,
        agent=agent,
        crew=None,
        entry_type=MemorySearched.ENTRY_TYPE,
        control=True,
        trace_id=run,
        actor_type="system",
        payload=payload.model_dump(mode="json"),
    )


def fact(entry_id: str, fact_id: str) -> OutgoingMessage:
    ends = {"entity_id": "x", "name": "x", "type": "t"}
    payload = {"fact_id": fact_id, "subject": ends, "predicate": "is", "object": ends}
    return control(payload, entry_id, entry_type="fact.asserted", workspace=WORKSPACE)


def drawer(entry_id: str, drawer_id: str) -> OutgoingMessage:
    payload = {"drawer_id": drawer_id, "wing": "a", "room": "b", "content": "c", "memory_type": "general"}
    return control(payload, entry_id, entry_type="drawer.filed", workspace=WORKSPACE)


def retracted(name: str, *targets: str) -> OutgoingMessage:
    payload = RetractionMade(targets=SequenceSet(ids=tuple(sorted(targets))), reason="wrong")
    return control(payload, name, workspace=WORKSPACE)


@asynccontextmanager
async def folded(path: Path, messages: Sequence[OutgoingMessage], batch: int = 1_000) -> AsyncIterator[LiveNode]:
    stream = [at(seq, message) for seq, message in enumerate(messages, 1)]
    async with node(path / "v.duckdb", [LineageProjection(), EntriesProjection(), VectorsProjection()]) as live:
        for first in range(0, len(stream), batch):
            await live.host.fold(stream[first : first + batch])
        assert not live.dead.parked
        yield live


def lineages(live: LiveNode) -> Lineages:
    return Lineages(cast(Node, SimpleNamespace(views=live.store)))


async def shown(live: LiveNode, name: str) -> LineageAnswer:
    return await lineages(live).show(CALLER, LineageRequest(name=name))


async def test_lineage_of_document_names_the_entries_links_and_people_that_it_was_made_of(tmp_path: Path) -> None:
    rule = entry("s1", entry_type="summary.generated", refs={"derived_from": ["a", "b"]})
    messages = [
        entry("a", data_subject_id="ana", agent="a1", actor_type="agent", actor_id="a1"),
        entry("b", data_subject_id="ben", agent="a2", actor_type="agent", actor_id="a2"),
        rule,
        document(write_id="d1", derived_from=("s1",), workspace=WORKSPACE),
        vector("a", entry_seq=1, workspace=WORKSPACE),
        link("b", "a", src_seq=2, dst_seq=1),
        entry("newer", supersedes=["a"]),
        fact("f_entry", "f1"),
        control(FactEnded(fact_ids=("f1",), ended="2026-11-21"), "ended", workspace=WORKSPACE),
    ]
    async with folded(tmp_path, messages) as live:
        written = await shown(live, "d1")
        assert [(step.name, step.how, step.depth, step.root) for step in written.made_of] == [
            ("s1", "derived_from", 1, False),
            ("a", "derived_from", 2, True),
            ("b", "derived_from", 2, True),
        ]
        assert (written.subjects, set(written.authors) >= {"agent:a1", "agent:a2"}) == (("ana", "ben"), True)
        made = {(step.name, step.how, step.what) for step in (await shown(live, "a")).made_from_it}
        assert made == {
            ("s1", "derived_from", "summary.generated"),
            ("d1", "derived_from", "memory.updated"),
            (None, "vector_of", "derived"),
            (None, "link", "derived"),
            ("newer", "supersedes", "run.completed"),
        }
        ended = (await shown(live, "fact:f1")).made_from_it
        assert [(step.name, step.how) for step in ended] == [("ended", "fact")]


class Model:
    """A plain account of who was given what, and of what ended; quadratic, and independent of the fold."""

    def __init__(self) -> None:
        self.given: list[tuple[int, int, str, str, str]] = []
        self.ended: list[tuple[int, str, str]] = []
        self.near: list[tuple[str, str]] = []

    def notices(self) -> set[tuple[str, str, str, str]]:
        found = set()
        for _seq, view_seq, holder, run, memory in self.given:
            for end_seq, other, why in self.ended:
                alike = (memory, other) in self.near or (other, memory) in self.near
                if end_seq > view_seq and (memory == other or (alike and why == "retracted")):
                    found.add((holder, run, memory, why))
        return found

    def saw(self, memory: str) -> set[str]:
        return {run for *_, run, held in self.given if held == memory}


def journal_of(seed: int) -> tuple[list[OutgoingMessage], Model]:
    """200 runs with receipts over 100 memories of three kinds, 20 of which end, in any order."""
    rng = random.Random(seed)
    model = Model()
    messages: list[OutgoingMessage] = []
    memories: dict[str, str] = {}
    for n in range(MEMORIES):
        kind = rng.choice(("entry", "fact", "drawer"))
        memories[f"m{n}"] = kind
        made = {"entry": entry(f"m{n}"), "fact": fact(f"m{n}", f"f{n}"), "drawer": drawer(f"m{n}", f"d{n}")}
        messages.append(made[kind])
    entries = [name for name, kind in memories.items() if kind == "entry"]
    for newer, older in zip(entries[1::4], entries[::4], strict=False):
        model.near.append((newer, older))
        messages.append(link(newer, older, src_seq=int(newer[1:]) + 1, dst_seq=int(older[1:]) + 1, weight=0.95))
    steps: list[tuple[str, Any]] = [("give", run) for run in range(RUNS)]
    steps += [("end", memory) for memory in rng.sample(sorted(memories), CHANGED)]
    rng.shuffle(steps)
    for what, value in steps:
        seq = len(messages) + 1
        if what == "give":
            hits = rng.sample(sorted(memories), rng.randint(1, 8))
            view_seq = max(1, seq - rng.choice((1, 1, 1, 30)))  # some receipts are late
            messages.append(searched(f"r{value}", f"a{value % 7}", f"run{value}", hits, view_seq))
            model.given += [(seq, view_seq, f"agent:a{value % 7}", f"run{value}", hit) for hit in hits]
            continue
        number = value[1:]
        ending: dict[str, tuple[OutgoingMessage, str]] = {
            "entry": (retracted(f"x{number}", value), "retracted"),
            "fact": (
                control(FactEnded(fact_ids=(f"f{number}",), ended="2026-11-21"), f"x{number}", workspace=WORKSPACE),
                "ended",
            ),
            "drawer": (control(DrawerDeleted(drawer_id=f"d{number}"), f"x{number}", workspace=WORKSPACE), "deleted"),
        }
        erased = ErasureScoped(erasure_id=f"x{number}", scope=SequenceSet(ids=(value,)))
        by_kind = (control(erased, f"x{number}", workspace=WORKSPACE), "erased")
        message, why = by_kind if rng.random() < 0.3 else ending[memories[value]]
        messages.append(message)
        model.ended.append((seq, value, why))
    return messages, model


@pytest.mark.parametrize(
    ("seed", "batch"),
    [(1, 1_000), (2, 1), *(pytest.param(*one, marks=pytest.mark.nightly) for one in ((1, 7), (3, 64)))],
)
async def test_notices_of_two_hundred_random_runs_are_those_of_the_model(tmp_path: Path, seed: int, batch: int) -> None:
    messages, model = journal_of(seed)
    async with folded(tmp_path, messages, batch) as live:
        rows = live.store.rows("SELECT holder, run, entry_id, why FROM lineage_notices")
        assert len(rows) == len(set(rows))
        assert set(rows) == model.notices()
        assert len(rows) > CHANGED
        for _, memory, _ in model.ended:
            saw = lineages(live).who_saw(CALLER, WhoSawRequest(name=memory))
            assert set((await saw).runs) == model.saw(memory)


async def test_told_notice_is_not_made_again_and_a_later_end_of_another_kind_is(tmp_path: Path) -> None:
    told = NoticesGiven(holder="agent:a1", run="r", entry_ids=("m",), until_seq=3)
    messages = [
        entry("m"),
        searched("s", "a1", "r", ["m"], 1),
        retracted("x1", "m"),
        control(told, "t", workspace=WORKSPACE),
        retracted("x2", "m"),
        control(ErasureScoped(erasure_id="x", scope=SequenceSet(ids=("m",))), "x3", workspace=WORKSPACE),
    ]
    async with folded(tmp_path, messages, batch=2) as live:
        rows = live.store.rows("SELECT why, told_seq FROM lineage_notices ORDER BY seq")
        assert rows == [("retracted", 4), ("erased", None)]


async def test_memory_given_after_its_end_makes_no_notice(tmp_path: Path) -> None:
    messages = [entry("m"), retracted("x1", "m"), searched("s", "a1", "r", ["m"], 2)]
    async with folded(tmp_path, messages) as live:
        assert live.store.rows("SELECT * FROM lineage_notices") == []


# Properties of whole journals.


BACK = {
    "postings_runs": "first_doc",
    "supersessions": "by_seq",
    "validities": "entry_seq",
    "memory_sweeps": "tick_seq",
}
"""Tables whose column with the sequence of a message is not ``seq``, ``since_seq`` or ``doc``."""
BY_NAME = {
    "tokens": "token_id is in the payload of its token.created",
    "accounts": "account_id is in the payload of its account.invited",
    "erased_ids": "erasure_id is in the payload of its erasure.requested",
    "chunk_models_dropped": "the last decision about the model",
    "token_bits_dropped": "the last decision about the model",
    "drawer_uses": "entry_id is the id of the entry that filed the drawer",
    "drawer_upkeep": "drawer_id is a name of the entry that filed it",
    "drawer_centroids": "the last drawer.centroid_computed of the type",
    "memory_importance": "entry_id is the id of the entry",
}
"""Tables whose rows lead back by a name."""
BOUNDED = settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))


def _column_of(table: Table[Any]) -> str | None:
    names = [column.name for column in table.columns]
    return next((name for name in (BACK.get(table.name), "seq", "since_seq", "doc") if name in names), None)


def test_every_table_has_a_way_back_to_messages() -> None:
    tables = [table for projection in discover_projections() for table in projection.tables]
    assert {table.name for table in tables if _column_of(table) is None} == set(BY_NAME)


@BOUNDED
@given(people=st.lists(st.sets(st.integers(0, 30), max_size=4), min_size=8, max_size=30), seed=st.integers(0, 99))
def test_text_made_of_several_people_names_all_of_them_and_goes_with_each(people: list[set[int]], seed: int) -> None:
    rng = random.Random(seed)
    messages, texts = [], list[set[str]]()
    for n, chosen in enumerate(people):
        sources = sorted(source for source in chosen if source < n)
        own = {f"p{rng.randint(0, 3)}"} if not sources or rng.random() < 0.2 else set[str]()
        refs = [f"e{source}" for source in sources]
        person: dict[str, Any] = {"data_subject_id": next(iter(own))} if own else {}
        if sources and rng.random() < 0.4:
            messages.append(document(write_id=f"e{n}", derived_from=tuple(refs), workspace=WORKSPACE, **person))
        else:
            messages.append(entry(f"e{n}", refs={"derived_from": refs}, **person))
        texts.append(own.union(*(texts[source] for source in sources)))
    events = [_decoded(seq, message) for seq, message in enumerate(messages, 1)]

    async def check() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with folded(Path(folder), messages) as live:
                for n, named in enumerate(texts):
                    assert set((await shown(live, f"e{n}")).subjects) == named

    asyncio.run(check())
    for name in {name for named in texts for name in named}:
        gone: set[str] = set()
        for event in events:
            subject = (
                event.entry.data_subject_id if hasattr(event, "entry") else getattr(event, "data_subject_id", None)
            )
            if subject == name or not gone.isdisjoint(sources_of(event)):
                gone.update(names_of(event))
        assert gone == {f"e{n}" for n, named in enumerate(texts) if name in named}


def _decoded(seq: int, message: OutgoingMessage) -> Event:
    return decode(seq, message.subject, message.headers, message.body, EPOCH_MS)


@BOUNDED
@given(stream=journals(max_messages=40))
def test_rows_of_all_views_lead_back_to_messages_of_the_stream(stream: list[RawMessage]) -> None:
    async def check() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with node(Path(folder) / "v.duckdb", discover_projections()) as live:
                await live.host.fold(stream)
                seqs = [message.seq for message in stream]
                for table in (table for projection in live.host.projections for table in projection.tables):
                    if (column := _column_of(table)) is not None:
                        sql = f"SELECT {column} FROM {table} WHERE {column} NOT IN (SELECT unnest(?::UBIGINT[]))"
                        assert live.store.rows(sql, [seqs]) == [], table.name

    asyncio.run(check())

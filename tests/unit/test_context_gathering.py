"""What goes into a context of a small journal: repeats, dates, what was replaced, what fills the room, what stays out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import numpy as np
from Stemmer import Stemmer
from support.events import EPOCH_MS, at, control, document, entry, vector
from support.views import node

from bench.one_node import node_of
from crew_journal.consumers.discovery import discover_projections
from crew_journal.schemas.context.operations import ContextAnswer, ContextRequest
from crew_journal.schemas.core.derived import OutgoingMessage
from crew_journal.schemas.core.ids import SYSTEM_WORKSPACE
from crew_journal.schemas.core.ports import Embedder
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.core.sequence_set import SequenceSet
from crew_journal.schemas.facts.events import FactAsserted, FactEntity
from crew_journal.schemas.facts.names import entity_id
from crew_journal.schemas.models.events import EmbeddingsActivated
from crew_journal.schemas.palace.events import DrawerFiled, PalaceIdentitySet
from crew_journal.schemas.standing.events import RetractionMade
from crew_journal.schemas.text.analyzer import Analyzer
from crew_journal.services.context.use_cases import Assembling
from crew_journal.services.desk import Caller
from crew_journal.services.documents.owned import PromptDocuments, StoredPrompts
from crew_journal.services.entries.queries import JournalQueries
from crew_journal.services.palace.searching import DrawerSearch
from crew_journal.services.recall.recall import RecallService
from crew_journal.services.registry import Registry

OWNER = Principal(token_id="t", role=Role.OWNER, workspace_id=None)
NOW = datetime(2026, 11, 22, tzinfo=UTC)
DAY_MS = 86_400_000


@asynccontextmanager
async def layered_memory(
    path: Path, messages: Sequence[OutgoingMessage], embedder: Embedder | None = None
) -> AsyncIterator[Assembling]:
    """Layered memory over these messages."""
    analyzer = Analyzer(Stemmer)
    async with node(path / "views.duckdb", discover_projections()) as live:
        await live.host.fold([at(seq, message) for seq, message in enumerate(messages, 1)])
        assert not live.dead.parked
        store = live.store
        recall = RecallService(store, lambda _: embedder, analyzer=analyzer, budget_bytes=1 << 24, clock=lambda: NOW)
        owned, registry, queries = PromptDocuments(store), Registry(store), JournalQueries(store)
        drawers = DrawerSearch(recall.cache, analyzer, recall.queries, clock=lambda: NOW)
        shared = node_of(store, queries=queries, recall=recall, analyzer=analyzer, clock=lambda: NOW)
        shared.put(DrawerSearch, drawers)
        shared.put(Registry, registry)
        shared.put(StoredPrompts, cast("StoredPrompts", owned))
        assembling = shared.use(Assembling)
        yield assembling
        await shared.ends.aclose()
        for part in (owned, registry, queries, recall):
            part.close()


async def context_of(
    path: Path, messages: Sequence[OutgoingMessage], prompt: str, embedder: Embedder | None = None, **asked: Any
) -> ContextAnswer:
    async with layered_memory(path, messages, embedder) as assembling:
        request = ContextRequest(prompt=prompt, record=False, agent_id="a1", **asked)
        return await assembling.assemble(Caller.of(OWNER, "w1"), request)


def said(name: str, text: str, day: int = 0, **also: Any) -> OutgoingMessage:
    return entry(name, summary=text, entry_type="memory.remembered", ts_ms=EPOCH_MS - (200 - day) * DAY_MS, **also)


def drawer(name: str, text: str, importance: float = 3.0) -> OutgoingMessage:
    filed = DrawerFiled(drawer_id=name, wing="a", room="b", content=text, memory_type="fact", importance=importance)
    return control(filed, f"d_{name}", workspace="w1")


def fact(name: str, subject: str, value: str, **also: Any) -> OutgoingMessage:
    one, other = (FactEntity(entity_id=entity_id(text), name=text) for text in (subject, value))
    return control(
        FactAsserted(fact_id=name, subject=one, predicate="is", object=other, **also), f"f_{name}", workspace="w1"
    )


def lines(made: ContextAnswer) -> list[str]:
    return [line for line in made.memory.splitlines() if line.startswith("- ")]


FILLER = [
    said(f"x{n}", f"{thing} of the {place} was counted on shelf {n}", day=n)
    for n, (thing, place) in enumerate(
        (a, b) for a in ("Rope", "Paint", "Glue", "Wire") for b in ["barn", "shed", "loft"]
    )
]


class OneVector:
    """An embedder that gives every query the same vector."""

    model_id = "mini"
    dim = 4

    async def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        return [await self.embed_query(text) for text in texts]

    async def embed_query(self, text: str) -> bytes:
        return np.array([1.0, 0.0, 0.0, 0.0], "<f4").tobytes()

    async def probe(self) -> None:
        """It works."""

    async def close(self) -> None:
        """Nothing to close."""


def with_vectors(entries: Sequence[OutgoingMessage], names: Sequence[str]) -> list[OutgoingMessage]:
    """The entries, and for each a vector that is as far from every query as it can be."""
    on = EmbeddingsActivated(model="mini", embedder="ollama", dim=4)
    far = [vector(name, entry_seq=seq, values=(-1.0, 0.0, 0.0, 0.0)) for seq, name in enumerate(names, 2)]
    return [control(on, "on", workspace=SYSTEM_WORKSPACE), *entries, *far]


async def test_what_has_no_evidence_fills_the_room_below_what_has_some(tmp_path: Path) -> None:
    answer = said("answer", "The harbour crane runs on hydraulic oil ISO 46", day=50)
    messages = with_vectors([*FILLER, answer], [f"x{n}" for n in range(len(FILLER))])
    made = await context_of(
        tmp_path, messages, "Which oil does the harbour crane need?", OneVector(), budget_tokens=400
    )
    assert made.items[0].id == "answer"
    assert len(made.items) > 10
    assert all(line.startswith("- weak ") for line in lines(made)[1:])
    assert made.tokens["total"] >= 0.8 * 400
    nothing = await context_of(tmp_path / "again", messages, "Who plays the organ?", OneVector(), budget_tokens=400)
    assert (nothing.memory, nothing.items) == ("", ()), "nothing has evidence, so nothing is near"


async def test_a_prompt_that_asks_nothing_gets_no_entries(tmp_path: Path) -> None:
    answer = said("answer", "Thanks to the harbour crane, all of today's boats are out", day=50)
    made = await context_of(tmp_path, [*FILLER, answer], "Thanks, that's all for today", budget_tokens=400)
    assert (made.memory, made.items) == ("", ())
    asked = await context_of(tmp_path / "asks", [*FILLER, answer], "Which boats are out today?", budget_tokens=400)
    assert asked.items[0].id == "answer"


async def test_the_same_text_of_an_entry_and_a_drawer_appears_once(tmp_path: Path) -> None:
    text = "The harbour crane runs on hydraulic oil"
    messages = [*FILLER, said("answer", text), drawer("same", f"User: {text}.")]
    made = await context_of(tmp_path, messages, "Which oil does the harbour crane run on?")
    assert made.memory.count("hydraulic oil") == 1
    assert [(drop.name, drop.reason) for drop in made.drops] == [("same", "it repeats answer")]


async def test_a_superseded_entry_stands_below_what_replaced_it_with_its_end(tmp_path: Path) -> None:
    messages = [
        *FILLER,
        said("old", "The harbour crane is inspected on Tuesday", day=10),
        said("new", "The harbour crane inspection moves to Friday", day=20, supersedes=["old"]),
    ]
    made = await context_of(tmp_path, messages, "When is the harbour crane inspected?")
    assert [item.id for item in made.items][:2] == ["new", "old"]
    new, old = made.items[:2]
    day = datetime.fromtimestamp((EPOCH_MS - 180 * DAY_MS) / 1_000, UTC).date().isoformat()
    assert (new.until, old.until) == (None, day)
    assert f"(until {day})" in lines(made)[1]


async def test_a_retracted_entry_is_left_out_and_a_stale_one_has_its_end(tmp_path: Path) -> None:
    entries = [said("red", "The harbour crane is red"), said("blue", "The harbour crane is painted in blue"), *FILLER]
    gone = RetractionMade(targets=SequenceSet(ids=("red",)), reason="wrong")
    stale = RetractionMade(targets=SequenceSet(ids=("blue",)), reason="repainted", stale=True)
    decided = [control(one, f"r{n}", workspace="w1") for n, one in enumerate((gone, stale))]
    made = await context_of(tmp_path, [*entries, *decided], "Which colour has the harbour crane?")
    of = {item.id: item for item in made.items}
    assert "red" not in of
    assert of["blue"].until == "2026-11-18"


async def test_facts_say_since_and_until_when_and_what_contradicts_them(tmp_path: Path) -> None:
    messages = [
        *FILLER,
        fact("t_1", "The archive", "the old vault", valid_from="2026-03-04", valid_to="2026-05-01", single_valued=True),
        fact("t_2", "The archive", "the new vault", valid_from="2026-05-02", single_valued=True),
        fact("t_3", "The archive", "the cellar", valid_from="2026-06-02", single_valued=True),
        fact("t_4", "The archive", "the moon", valid_from="2030-06-02", single_valued=True),
    ]
    made = await context_of(tmp_path, messages, "Where is the archive?")
    facts = [item.id for item in made.items if item.source == "fact"]
    assert facts == ["t_3", "t_1", "t_2"], "the newest first, what ended below it, nothing to come"
    of = {item.id: item for item in made.items}
    assert (of["t_1"].since, of["t_1"].until, of["t_1"].contradicted_by) == ("2026-03-04", "2026-05-01", None)
    assert of["t_2"].contradicted_by == '"The archive is the cellar"'
    assert of["t_3"].contradicted_by == '"The archive is the new vault"'
    assert "(since 2026-03-04; until 2026-05-01) The archive is the old vault" in made.memory
    assert made.stale == ()


async def test_an_identity_and_important_drawers_that_share_nothing_stay_out_and_pins_stay_in(tmp_path: Path) -> None:
    messages = [
        *FILLER,
        control(PalaceIdentitySet(content="We are the bakers of the valley."), "i1", workspace="w1"),
        drawer("essential", "Dough rests before dawn.", importance=5.0),
        document("w_1", owner="a-a1", tier="pins", key=None, action="replace", content="- Always answer in verse.\n"),
        said("answer", "The harbour crane runs on hydraulic oil"),
    ]
    made = await context_of(tmp_path, messages, "Which oil does the harbour crane need?")
    assert "bakers" not in made.memory
    assert "Dough" not in made.memory
    assert "verse" in made.memory
    again = await context_of(tmp_path / "again", messages, "Who are the bakers?")
    assert "bakers of the valley" in again.memory


async def test_a_smaller_budget_reserves_the_same_share_for_the_system(tmp_path: Path) -> None:
    made = await context_of(tmp_path, FILLER, "Where is the rope?", budget_tokens=400)
    assert made.allocation["system"] == 500 * 400 // 8_000
    named = await context_of(tmp_path / "again", FILLER, "Where is the rope?", budget_tokens=400, system_tokens=100)
    assert named.allocation["system"] == 100

"""A context of the same journal is the same bytes, however the journal was folded."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from Stemmer import Stemmer
from support.events import at, control, document, entry
from support.views import node

from bench.one_node import node_of
from crew_journal.consumers.discovery import discover_projections
from crew_journal.schemas.context.operations import ContextRequest
from crew_journal.schemas.core.derived import OutgoingMessage
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.facts.events import FactAsserted, FactEntity, FactVerified
from crew_journal.schemas.facts.names import entity_id
from crew_journal.schemas.palace.events import DrawerFiled, PalaceIdentitySet
from crew_journal.schemas.text.analyzer import Analyzer
from crew_journal.services.context.use_cases import Assembling
from crew_journal.services.desk import Caller
from crew_journal.services.documents.owned import PromptDocuments, StoredPrompts
from crew_journal.services.entries.queries import JournalQueries
from crew_journal.services.palace.searching import DrawerSearch
from crew_journal.services.recall.recall import RecallService
from crew_journal.services.registry import Registry

DOCUMENTS = (("pins", None), ("AGENT", None), ("daily", "2026-11-21"), ("procedures", "restart"))
OWNER = Principal(token_id="t", role=Role.OWNER, workspace_id=None)
NOW = datetime(2026, 11, 22, tzinfo=UTC)


def journal() -> Iterator[OutgoingMessage]:
    for n in range(12):
        subject, zone = f"Archive {n}", f"zone {n % 3}"
        ends = [FactEntity(entity_id=entity_id(name), name=name) for name in (subject, zone)]
        said = FactAsserted(fact_id=f"t_{n}", subject=ends[0], predicate="runs in", object=ends[1], confidence=n / 12)
        yield control(said, f"f{n}", workspace="w1")
        yield entry(f"e{n}", workspace="w1", summary=f"The parser of zone {n % 3} was restarted by host {n * 7}")
        yield entry(
            f"r{n}", workspace="w1", summary=f"Step {n} of the restart", entry_type="run.step", trace_id="run-7"
        )
        content = f"The parser reads archive {n} in one pass."
        yield control(
            DrawerFiled(drawer_id=f"drawer_a_b_{n}", wing="a", room="b", content=content, memory_type="fact"),
            f"d{n}",
            workspace="w1",
        )
    yield control(FactVerified(fact_id="t_3", confidence=0.9), "v1", workspace="w1")
    yield entry("archive", workspace="w1", summary="Ann moved the fiscal archive to tape")
    yield control(PalaceIdentitySet(content="The workspace of the fiscal archive."), "i1", workspace="w1")
    for n, (tier, key) in enumerate(DOCUMENTS):
        yield document(f"w_{n}", owner="a-a1", tier=tier, key=key, action="replace", content=f"- {tier}: the archive\n")


async def assembled(path: Path, batch: int) -> str:
    stream = [at(seq, message) for seq, message in enumerate(journal(), 1)]
    analyzer = Analyzer(Stemmer)
    async with node(path, discover_projections()) as live:
        for first in range(0, len(stream), batch):
            await live.host.fold(stream[first : first + batch])
        assert not live.dead.parked
        store = live.store
        recall = RecallService(store, lambda _: None, analyzer=analyzer, budget_bytes=1 << 24, clock=lambda: NOW)
        owned, registry, queries = PromptDocuments(store), Registry(store), JournalQueries(store)
        drawers = DrawerSearch(recall.cache, analyzer, recall.queries, clock=lambda: NOW)
        shared = node_of(store, queries=queries, recall=recall, analyzer=analyzer, clock=lambda: NOW)
        shared.put(DrawerSearch, drawers)
        shared.put(Registry, registry)
        shared.put(StoredPrompts, cast("StoredPrompts", owned))
        assembling = shared.use(Assembling)
        request = ContextRequest(
            prompt="Where was the fiscal archive moved?",
            budget_tokens=700,
            record=False,
            agent_id="a1",
            run_id="run-7",
        )
        made = await assembling.assemble(Caller.of(OWNER, "w1"), request)
        again = await assembling.assemble(Caller.of(OWNER, "w1"), request)
        assert again.model_dump_json() == made.model_dump_json()
        await shared.ends.aclose()
        for part in (owned, registry, queries, recall):
            part.close()
    assert {item.kind for item in made.items} == {"working", "semantic", "procedural", "episodic"}
    assert {item.source for item in made.items} == {"fact", "entry", "drawer", "document", "identity"}
    assert "archive" in {item.id for item in made.items}
    assert made.drops, "the budget is small enough that some are dropped"
    return made.model_dump_json()


async def test_a_rebuild_in_other_batches_gives_the_same_context(tmp_path: Path) -> None:
    assert await assembled(tmp_path / "one.duckdb", 1_000) == await assembled(tmp_path / "two.duckdb", 5)

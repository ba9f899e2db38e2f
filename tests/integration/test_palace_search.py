"""Drawers found by meaning and through the knowledge graph, and what the hot index makes of every event."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from Stemmer import Stemmer
from support.embedding import until
from support.memory_node import SWIFT_CHUNKS, WORKSPACE, MemoryNode, Themes

from crew_journal.consumers.models.missing_reactor import EmbedChunksReactor
from crew_journal.schemas.core.payload import ControlPayload
from crew_journal.schemas.facts.events import FactAsserted, FactEntity
from crew_journal.schemas.facts.names import entity_id
from crew_journal.schemas.palace.events import (
    DrawerDeleted,
    DrawerFiled,
    DrawerMerged,
    DrawerPruned,
    DrawerRestored,
    DrawerSuperseded,
    DrawerUpdated,
)
from crew_journal.schemas.palace.operations import PalaceRecipe
from crew_journal.schemas.recall.events import MemoryReferenced, ReferencedEntry
from crew_journal.schemas.text.analyzer import Analyzer
from crew_journal.services.palace.searching import DrawerSearch


@pytest.fixture
def drawers(live: MemoryNode) -> DrawerSearch:
    return DrawerSearch(
        live.recall_service.cache,
        Analyzer(Stemmer),
        live.recall_service.queries,
        clock=lambda: datetime.now(UTC),
    )


async def record(live: MemoryNode, *payloads: ControlPayload) -> list[str]:
    made = [await live.journal.record(WORKSPACE, one, summary="palace") for one in payloads]
    await live.caught_up(made[-1].seq)
    return [one.id for one in made]


def filed(name: str, content: str, *, wing: str = "w", room: str = "r", importance: float = 3.0) -> DrawerFiled:
    return DrawerFiled(
        drawer_id=name, wing=wing, room=room, content=content, memory_type="general", importance=importance
    )


async def found(drawers: DrawerSearch, query: str, **asked: object) -> list[str]:
    hits, _ = await drawers.search(WORKSPACE, query, 5, **asked)  # type: ignore[arg-type]
    return [hit.drawer.drawer_id for hit in hits]


async def until_vectors(live: MemoryNode, count: int) -> None:
    async def enough() -> object:
        return live.store.rows("SELECT count(*) FROM memory_chunk_vectors WHERE dim > 0") == [(count,)]

    await until(enough, f"{count} vectors")
    [(seq,)] = live.store.rows("SELECT max(seq) FROM memory_chunk_vectors")
    await live.caught_up(seq)  # a commit can be read before the indexes hear of it


async def start_embedding(live: MemoryNode) -> None:
    await live.react(EmbedChunksReactor, limits=SWIFT_CHUNKS)


async def test_a_drawer_is_embedded_once_it_is_filed_and_found_by_meaning_within_its_wing(
    live: MemoryNode, drawers: DrawerSearch, themes: Themes
) -> None:
    await record(live, filed("full", "the disk disk ran over at night"), filed("late", "the queue queue ran over"))
    assert await found(drawers, "over") == ["late", "full"]
    await start_embedding(live)
    await record(live, filed("cache", "a token token expired", wing="other"))
    await until_vectors(live, 3)
    hits, model = await drawers.search(WORKSPACE, "disk", 5)
    assert model == themes.model_id
    assert hits[0].drawer.drawer_id == "full"
    assert hits[0].similarity > 0.9
    assert await found(drawers, "token", wing="w") == []
    assert [one.drawer.drawer_id for one in await drawers.alike(WORKSPACE, "disk disk", 0.9, 5)] == ["full"]


async def test_what_is_removed_leaves_the_search_and_comes_back_with_its_vector(
    live: MemoryNode, drawers: DrawerSearch
) -> None:
    await start_embedding(live)
    await record(live, filed("a", "the disk ran over"), filed("b", "the disk is slow"), filed("c", "the disk hums"))
    await until_vectors(live, 3)
    assert len(await found(drawers, "disk")) == 3
    for removal in (
        DrawerDeleted(drawer_id="a"),
        DrawerPruned(drawer_ids=("a",)),
        DrawerSuperseded(drawer_id="a", superseded_by="b"),
        DrawerMerged(into="b", drawer_ids=("a",)),
    ):
        await record(live, removal)
        assert sorted(await found(drawers, "disk")) == ["b", "c"]
        await record(live, DrawerRestored(drawer_id="a"))
        hits, _ = await drawers.search(WORKSPACE, "disk", 5)
        assert sorted(hit.drawer.drawer_id for hit in hits) == ["a", "b", "c"]
        assert all(hit.similarity > 0.9 for hit in hits)
    await record(live, DrawerUpdated(drawer_id="a", room="attic", importance=5.0))
    assert await found(drawers, "disk", room="attic") == ["a"]


async def test_a_drawer_is_found_through_a_fact_that_holds_now_about_an_entity_that_the_query_names(
    live: MemoryNode, drawers: DrawerSearch
) -> None:
    await record(live, filed("offer", "she asked for 90 and got it"), filed("old", "the contract was short"))

    def fact(name: str, drawer: str, until: str | None) -> FactAsserted:
        ends = [FactEntity(entity_id=entity_id(one), name=one) for one in ("Alice Smith", "Acme")]
        return FactAsserted(
            fact_id=name,
            subject=ends[0],
            predicate="works_for",
            object=ends[1],
            source_drawer_id=drawer,
            valid_to=until,
        )

    await record(live, fact("f1", "offer", None), fact("f2", "old", "2020-01-01"))
    assert await found(drawers, "what about alice smith?") == ["offer"]
    assert await found(drawers, "what about alice?") == []
    assert await found(drawers, "what about Alice Smith?", recipe=PalaceRecipe.PALACE_SEED) == ["offer"]


async def test_the_recipe_of_the_seed_ranks_by_importance_and_the_last_read(
    live: MemoryNode, drawers: DrawerSearch
) -> None:
    ids = await record(
        live, filed("plain", "the disk ran over"), filed("weighty", "the disk ran over us", importance=5.0)
    )
    seed = {"recipe": PalaceRecipe.PALACE_SEED}
    assert await found(drawers, "disk ran over", **seed) == ["weighty", "plain"]
    await record(live, MemoryReferenced(entries=(ReferencedEntry(entry_id=ids[0], count=1),)))
    assert await found(drawers, "disk ran over", **seed) == ["plain", "weighty"]
    early = DrawerSearch(
        live.recall_service.cache,
        Analyzer(Stemmer),
        live.recall_service.queries,
        clock=lambda: datetime(2020, 1, 1, tzinfo=UTC),
    )
    hits, _ = await early.search(WORKSPACE, "disk ran over", 1, recipe=PalaceRecipe.PALACE_SEED)
    assert hits[0].score == pytest.approx(3.0 * hits[0].similarity)  # a read after the query counts as one just now

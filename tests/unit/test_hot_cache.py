"""The cache of hot indexes: one budget over entries, documents, drawers and facts."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from Stemmer import Stemmer
from support.events import at, control, document, entry
from support.views import node

from crew_journal.consumers.discovery import discover_projections
from crew_journal.schemas.core.derived import OutgoingMessage
from crew_journal.schemas.facts.events import EntityNamed, FactAsserted, FactEntity
from crew_journal.schemas.palace.events import DrawerFiled
from crew_journal.schemas.text.analyzer import Analyzer
from crew_journal.services.documents.search import document_indexes
from crew_journal.services.facts.index import FactIndex, fact_indexes
from crew_journal.services.index.cache import HotCache, Indexes
from crew_journal.services.index.entry_slot import EntryIndexes
from crew_journal.services.index.shelf import TextSlot
from crew_journal.services.palace.drawer_index import drawer_indexes

WORKSPACES = ("w1", "w2", "w3")
OF_EACH = 20
KINDS = ("entries", "documents", "drawers", "facts")


def every_kind(workspace: str) -> list[OutgoingMessage]:
    made = []
    for n in range(OF_EACH):
        name, text = f"{workspace}-{n}", f"Server {n} of {workspace} works on its queue"
        made.append(entry(f"e-{name}", summary=text, workspace=workspace))
        made.append(
            document(f"d-{name}", workspace=workspace, owner="a-ada", tier="topics", key=f"t{n}", action="replace",
                     content=text)
        )  # fmt: skip
        filed = DrawerFiled(drawer_id=name, wing="w", room="r", content=text, memory_type="general")
        ends = [FactEntity(entity_id=f"e_{end} {n}", name=f"{end} {n}") for end in ("server", "queue")]
        said = FactAsserted(fact_id=name, subject=ends[0], predicate="has", object=ends[1], text=text)
        made += [control(filed, f"p-{name}", workspace=workspace), control(said, f"f-{name}", workspace=workspace)]
    return made


def kinds_of(cache: HotCache) -> dict[str, Indexes]:
    every = (
        EntryIndexes(cache),
        document_indexes(cache),
        drawer_indexes(cache),
        fact_indexes(cache, Analyzer(Stemmer)),
    )
    return {indexes.kind: indexes for indexes in every}


@pytest.fixture
async def views(tmp_path: Path):
    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        messages = [message for workspace in WORKSPACES for message in every_kind(workspace)]
        await live.host.fold([at(seq, message) for seq, message in enumerate(messages, 1)])
        assert not live.dead.parked
        yield live


async def test_all_kinds_together_hold_no_more_than_the_budget_but_the_index_in_use(views) -> None:
    cache = HotCache(views.store, 1 << 30)
    kinds = kinds_of(cache)
    for workspace in WORKSPACES:
        for indexes in kinds.values():
            assert len(await indexes.get(workspace)) == OF_EACH
    whole = cache.nbytes
    assert [kinds[kind].figures("texts")["workspaces"] for kind in KINDS] == [3, 3, 3, 3]
    assert sum(indexes.figures("texts")["bytes"] for indexes in kinds.values()) == whole
    for budget in (whole // 2, whole // 5, 1):
        cache.budget_bytes = budget
        for workspace in (*WORKSPACES, *reversed(WORKSPACES)):
            for indexes in kinds.values():
                used = await indexes.reload(workspace)
                assert cache.nbytes <= max(budget, used.nbytes)
    cache.close()


async def test_what_was_used_longest_ago_is_dropped_first_whatever_its_kind(views) -> None:
    cache = HotCache(views.store, 1 << 30)
    kinds = kinds_of(cache)
    for kind in KINDS:
        await kinds[kind].get("w1")
    await kinds["entries"].get("w1")
    cache.budget_bytes = cache.nbytes
    await kinds["facts"].get("w2")
    held = [kind for kind in KINDS if cache.slot(kind, "w1") is not None]
    assert "documents" not in held
    assert "entries" in held
    cache.close()


async def test_every_kind_follows_a_commit_without_a_load(views) -> None:
    cache = HotCache(views.store, 1 << 30)
    kinds = kinds_of(cache)
    before = {kind: await kinds[kind].get("w1") for kind in KINDS}
    more = every_kind("w9")
    seq = views.store.view_seq("entries")
    await views.host.fold([at(seq + n, message) for n, message in enumerate(more, 1)])
    for kind in KINDS:
        assert await kinds[kind].get("w1", seq + len(more)) is before[kind]
        assert before[kind].seq == seq + len(more)
    cache.close()


async def test_entries_answer_from_the_former_index_without_its_texts_until_a_replaced_file_is_loaded(views) -> None:
    cache = HotCache(views.store, 1 << 30)
    kinds = kinds_of(cache)
    before = {kind: await kinds[kind].get("w1") for kind in KINDS}
    assert before["entries"].records.of([0])[0] is not None
    views.store.invalidate()
    former = await kinds["entries"].get("w1")
    assert former is before["entries"]
    assert former.records.of([0]) == [None]  # so they are read from the present views
    assert await kinds["documents"].get("w1") is not before["documents"]
    await cache.renew()
    for kind in KINDS:
        assert await kinds[kind].get("w1") is not before[kind]
    views.store.invalidate()
    assert await kinds["entries"].get("w1", former.seq + 1) is not former
    cache.close()


async def test_facts_follow_a_name_that_comes_to_mean_another_entity(views) -> None:
    cache = HotCache(views.store, 1 << 30)
    indexes = fact_indexes(cache, Analyzer(Stemmer))
    index = await indexes.get("w1")
    alias, meant = (FactEntity(entity_id=f"e_{name}", name=name) for name in ("server 3", "Zeppelin"))
    seq = views.store.view_seq("entries") + 1
    await views.host.fold([at(seq, control(EntityNamed(entity=meant, aliases=(alias,)), "n1", workspace="w1"))])
    assert await indexes.get("w1", seq) is index
    loaded = TextSlot(cache, "w1", make=partial(FactIndex, Analyzer(Stemmer))).read()
    for one in (index, loaded):
        [hit, *_] = one.search("zeppelin", None, None, 0, 5)
        assert (hit.fact.subject, hit.fact.subject_root) == ("Zeppelin", "e_Zeppelin")
    assert index.search("queue", None, None, 0, 50) == loaded.search("queue", None, None, 0, 50)
    cache.close()

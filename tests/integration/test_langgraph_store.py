"""The store of LangGraph: one suite on the framework's own store and on ours, then what only ours does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.stack import Stack, running_stack

from crew_journal.schemas.core.principal import Role
from crew_journal.services.client import CrewJournal

if TYPE_CHECKING:  # langgraph takes half a second to import; only the worker that runs these tests imports it
    from langgraph.store.base import BaseStore

    from crew_journal.services.client.adapters.langgraph_store import CrewJournalStore


@pytest.fixture(scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    async with running_stack(Path(tmp_path_factory.mktemp("langgraph"))) as running:
        yield running


@pytest.fixture
async def journal(stack: Stack, request: pytest.FixtureRequest) -> AsyncIterator[CrewJournal]:
    """As an agent of a workspace of the test's own."""
    workspace = f"w{abs(hash(request.node.name))}"
    token = await stack.token(Role.AGENT, workspace, agent="ada", crew="red")
    with stack.sync_client(token.plaintext) as client:
        yield client


@pytest.fixture
def store(journal: CrewJournal) -> CrewJournalStore:
    from crew_journal.services.client.adapters.langgraph_store import CrewJournalStore

    return CrewJournalStore(journal)


@pytest.fixture(params=["theirs", "ours"])
def either(request: pytest.FixtureRequest) -> BaseStore:
    from langgraph.store.memory import InMemoryStore

    return InMemoryStore() if request.param == "theirs" else request.getfixturevalue("store")


def keys(items: Any) -> list[str]:
    return [item.key for item in items]


async def test_an_item_is_read_back_replaced_and_deleted(either: BaseStore) -> None:
    place = ("users", "zoe"), "tea"
    assert await either.aget(*place) is None
    await either.aput(*place, {"text": "prefers green tea", "cups": 2})
    first = await either.aget(*place)
    await either.aput(*place, {"text": "prefers black tea"})
    second = await either.aget(*place)
    assert first is not None
    assert second is not None
    assert (first.value, first.namespace, first.key) == ({"text": "prefers green tea", "cups": 2}, *place)
    assert second.value == {"text": "prefers black tea"}
    assert second.updated_at > first.updated_at
    await either.adelete(*place)
    assert await either.aget(*place) is None
    await either.adelete(*place)
    await either.aput(*place, {"text": "prefers no tea"})
    again = await either.aget(*place)
    assert again is not None
    assert again.value == {"text": "prefers no tea"}


async def test_a_search_filters_by_namespace_and_value_and_pages(either: BaseStore) -> None:
    for number in range(4):
        await either.aput(("docs", "a"), f"a{number}", {"number": number, "kind": {"odd": number % 2 == 1}})
    await either.aput(("docs", "b"), "b", {"number": 9})
    await either.aput(("docsother",), "c", {"number": 9})
    assert sorted(keys(await either.asearch(("docs",)))) == ["a0", "a1", "a2", "a3", "b"]
    assert len(await either.asearch(())) == 6
    assert sorted(keys(await either.asearch(("docs",), filter={"number": {"$gte": 3}}))) == ["a3", "b"]
    assert sorted(keys(await either.asearch(("docs", "a"), filter={"kind": {"odd": True}}))) == ["a1", "a3"]
    pages = [keys(await either.asearch(("docs",), limit=2, offset=offset)) for offset in (0, 2, 4)]
    assert [len(page) for page in pages] == [2, 2, 1]
    assert len({key for page in pages for key in page}) == 5


async def test_namespaces_are_listed_by_prefix_suffix_and_depth(either: BaseStore) -> None:
    for namespace in [("a", "b", "c"), ("a", "b", "d", "e"), ("a", "b", "d", "i"), ("a", "c", "f"), ("x",)]:
        await either.aput(namespace, "k", {"v": 1})
    await either.adelete(("a", "c", "f"), "k")
    listed = await either.alist_namespaces(prefix=("a", "b"), max_depth=3)
    assert listed == [("a", "b", "c"), ("a", "b", "d")]
    assert await either.alist_namespaces(suffix=("*", "i")) == [("a", "b", "d", "i")]
    assert len(await either.alist_namespaces(limit=2, offset=1)) == 2


async def test_a_batch_reads_before_it_writes_and_its_last_write_counts(either: BaseStore) -> None:
    from langgraph.store.base import GetOp, PutOp

    await either.aput(("n",), "k", {"v": 0})
    answers = await either.abatch(
        [PutOp(("n",), "k", {"v": 1}), GetOp(("n",), "k"), PutOp(("n",), "k", {"v": 2}), GetOp(("n",), "none")]
    )
    assert [getattr(answer, "value", answer) for answer in answers] == [None, {"v": 0}, None, None]
    after = await either.aget(("n",), "k")
    assert after is not None
    assert after.value == {"v": 2}


async def test_the_blocking_methods_answer_the_same(store: CrewJournalStore) -> None:
    def blocking() -> Any:
        store.put(("n",), "k", {"v": 1})
        return store.get(("n",), "k"), store.search(("n",)), store.list_namespaces()

    item, [found], namespaces = await asyncio.to_thread(blocking)
    assert (item.value, found.key, namespaces) == ({"v": 1}, "k", [("n",)])


async def test_a_query_ranks_what_recall_finds_before_the_rest(store: CrewJournalStore) -> None:
    texts = {"cat": "the cat sleeps on the warm oven", "disk": "the disk of node seven is full", "sea": "a boat at sea"}
    for key, text in texts.items():
        await store.aput(("facts",), key, {"text": text})
    await store.aput(("other",), "disk", {"text": "the disk of node eight is full"})
    best, *rest = await store.asearch(("facts",), query="which disk is full?")
    assert best.key == "disk"
    assert best.score is not None
    assert {item.key for item in rest} == {"cat", "sea"}
    assert {item.score for item in rest} == {None}


async def test_a_replaced_or_deleted_item_does_not_count_in_recall_and_stays_in_the_journal(
    store: CrewJournalStore, journal: CrewJournal
) -> None:
    await store.aput(("n",), "k", {"text": "the gate code is twelve"})
    await store.aput(("n",), "k", {"text": "the gate code is thirty"})
    await store.aget(("n",), "k")  # waits for the views
    found = await asyncio.to_thread(journal.recall, "gate code", mode="inject")
    assert [hit.summary for hit in found.hits] == ["the gate code is thirty"]
    await store.adelete(("n",), "k")
    assert (await asyncio.to_thread(journal.recall, "gate code", mode="inject")).hits == ()
    kept = await asyncio.to_thread(lambda: list(journal.entries(mission_id="langgraph")))
    states = {entry.summary: entry.standing for entry in kept}
    gone = states["the gate code is thirty"]
    assert gone is not None
    assert (gone.state, gone.reason, gone.by) == ("retracted", "deleted from the store", "ada")
    assert len(kept) == 2


async def test_an_item_expires_unless_reads_renew_it(store: CrewJournalStore, journal: CrewJournal) -> None:
    await store.aput(("n",), "short", {"v": 1}, ttl=1e-9)
    assert await store.aget(("n",), "short") is None
    assert await store.asearch(("n",)) == []
    assert await store.alist_namespaces() == []
    await store.aput(("n",), "long", {"v": 1}, ttl=60)
    first = await store.aget(("n",), "long", refresh_ttl=False)
    assert first == await store.aget(("n",), "long")
    assert first == await store.aget(("n",), "long", refresh_ttl=False)

    versions = await asyncio.to_thread(lambda: [e.payload for e in journal.entries(mission_id="langgraph")])
    ends = [payload["expires_at"] for payload in versions if payload["key"] == "long"]
    assert len(ends) == 2
    assert ends[0] > ends[1]


async def test_stores_with_different_names_are_apart(store: CrewJournalStore, journal: CrewJournal) -> None:
    from crew_journal.services.client.adapters.langgraph_store import CrewJournalStore

    await store.aput(("n",), "k", {"v": 1})
    other = CrewJournalStore(journal, name="other")
    assert await other.aget(("n",), "k") is None
    assert await other.asearch(()) == []


async def test_index_chooses_the_text_that_recall_searches(store: CrewJournalStore, journal: CrewJournal) -> None:
    await store.aput(("n",), "k", {"title": "A harbour at dawn", "body": {"lines": ["first", "second"]}})
    await store.aput(("n",), "l", {"title": "A harbour at dawn", "body": "x"}, index=["title"])
    await store.aput(("n",), "m", {"title": "A harbour at dawn"}, index=False)
    await store.aget(("n",), "m")  # waits for the views
    kept = await asyncio.to_thread(
        lambda: {e.payload["key"]: e.summary for e in journal.entries(types="memory.remembered")}
    )
    assert kept == {"k": "A harbour at dawn; first; second", "l": "A harbour at dawn", "m": "m"}

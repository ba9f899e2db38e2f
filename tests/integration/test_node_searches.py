"""Several nodes on one journal: one searches the texts of a workspace for all, and the next node while that cannot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from support.minilm import minilm_cache
from support.nats import running_broker
from support.nodes import client_of, owned_by, running_nodes

from crew_journal.schemas.cluster.slots import first_two, slot_of
from crew_journal.schemas.core.errors import InvalidQuery, NotFound
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.cluster import routing
from crew_journal.services.index.cache import HotCache
from crew_journal.services.runtime.node import Runtime

NAMES = ("a", "b")
OF_B = tuple(w for w in map("w{}".format, range(100)) if first_two(slot_of(w), NAMES)[0] == "b")
LINKED_S = 20.0
TEXTS = (
    "the press of the bakery needs oil every morning",
    "the press of the bakery needs oil each morning",
    "every morning the press of the bakery needs oil",
    "Maria orders flour on Mondays",
)
LARGE = 40
"""Hits whose texts together do not fit into a message of the broker."""


@pytest.fixture(scope="module")
async def nodes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, Runtime]]:
    folder = tmp_path_factory.mktemp("nodes")
    model: dict[str, Any] = {"embedder": "minilm", "models_dir": minilm_cache()}
    async with running_broker(folder / "broker") as broker:
        at = {"nats": broker.url, "nats_user": broker.user, "nats_password": broker.password}
        async with running_nodes(folder, NAMES, **at, **model) as running:
            yield running


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, too, the owner is asked to its end: a node that answers for it keeps the texts."""
    for name in ("SILENT_S", "LOADED_S", "CAUGHT_UP_S"):
        monkeypatch.setattr(routing, name, LINKED_S)


@pytest.fixture
async def clients(nodes: dict[str, Runtime]) -> AsyncIterator[tuple[AsyncCrewJournal, ...]]:
    async with AsyncExitStack() as stack:
        yield tuple([await stack.enter_async_context(client_of(node)) for node in nodes.values()])


async def kept(client: AsyncCrewJournal) -> int:
    """Workspaces whose entries the node has in memory."""
    return int((await client.status())["hot_index"]["workspaces"])


async def searched(client: AsyncCrewJournal, workspace: str, seq: int) -> tuple[Any, ...]:
    """Hits of a recall, results of a search, and a context."""
    hits = await client.recall("what does the press need", min_seq=seq, workspace_id=workspace)
    assert hits.view_seq >= seq
    found = await client.search_memory("oil for the press", workspace_id=workspace)
    context = await client.context_assemble("the press", workspace_id=workspace)
    return [hit.entry_id for hit in hits.hits], found.model_dump(exclude={"receipt"}), context.memory


async def test_a_search_through_the_wrong_node_is_the_owners_and_leaves_no_text_there(
    clients: tuple[AsyncCrewJournal, ...],
) -> None:
    one, two = clients
    here, there = owned_by("a", NAMES), owned_by("b", NAMES)
    for workspace in (here, there):
        entries = [
            {
                "id": f"e{n}",
                "entry_type": "peer.escalation",
                "summary": text,
                "workspace_id": workspace,
                "crew_id": "core",
            }
            for n, text in enumerate(TEXTS)
        ]
        last = (await one.append_batch(entries))[-1].seq
        async with asyncio.timeout(LINKED_S):  # a reactor of either node searched for what is near
            while not (await one.graph("e2", min_seq=last, workspace_id=workspace)).edges:  # noqa: ASYNC110  # another task
                await asyncio.sleep(0.05)
        written = await one.document_write(
            "WORKSPACE", "replace", "# Press\n\nThe press needs oil.", workspace_id=workspace
        )
        while True:  # vectors arrive meanwhile
            before, there_too, after = [await searched(client, workspace, written.seq) for client in (one, two, one)]
            if before == after:
                break
        assert there_too == after
        assert set(after[0]) >= {"e0", "e1", "e2"}
    assert [await kept(client) for client in clients] == [1, 1]


async def test_a_large_workspace_is_kept_by_the_next_node_too(
    clients: tuple[AsyncCrewJournal, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "LARGE_TEXTS", len(TEXTS))
    monkeypatch.setattr(routing, "NEXT_EVERY", 4)
    for workspace, texts in ((OF_B[2], TEXTS), (OF_B[3], TEXTS[1:])):
        entries = [{"entry_type": "run.completed", "summary": text, "workspace_id": workspace} for text in texts]
        last = (await clients[0].append_batch(entries))[-1].seq
        before = await kept(clients[0])
        for client in clients:
            for _ in range(4):
                assert (await client.recall("oil", min_seq=last, workspace_id=workspace)).hits
        assert await kept(clients[0]) == before + (texts is TEXTS)


async def test_the_next_node_answers_while_the_owner_loads(
    clients: tuple[AsyncCrewJournal, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = OF_B[4]
    entry = {"entry_type": "run.completed", "summary": "oil for the press", "workspace_id": workspace}
    last = await clients[0].append(entry)
    loads, begun = asyncio.Event(), 0
    in_thread = HotCache.in_thread

    async def slow_at_first(cache: HotCache, *given: Any) -> Any:
        nonlocal begun
        begun += 1
        if begun == 1:  # the owner's
            await loads.wait()
        return await in_thread(cache, *given)

    monkeypatch.setattr(HotCache, "in_thread", slow_at_first)
    monkeypatch.setattr(routing, "LOADED_S", 0.25)
    before = [await kept(client) for client in clients]
    for client in clients:
        assert (await client.recall("oil", min_seq=last.seq, workspace_id=workspace)).hits
    assert [await kept(client) for client in clients] == [before[0] + 1, before[1]]
    loads.set()
    async with asyncio.timeout(LINKED_S):
        while await kept(clients[1]) == before[1]:  # noqa: ASYNC110  # a task of the node
            await asyncio.sleep(0.05)


async def test_an_answer_that_does_not_fit_into_a_message_is_made_where_it_was_asked_for(
    clients: tuple[AsyncCrewJournal, ...],
) -> None:
    workspace = OF_B[1]
    entries = [
        {
            "entry_type": "peer.escalation",
            "summary": f"walrus {n}",
            "payload": {"text": f"{n} " * 20_000},
            "workspace_id": workspace,
        }
        for n in range(LARGE)
    ]
    seqs = [receipt.seq for entry in entries for receipt in await clients[0].append_batch([entry])]
    before = await kept(clients[0])
    hits = await clients[0].recall("walrus", k=LARGE, min_seq=seqs[-1], workspace_id=workspace)
    assert len(hits.hits) == LARGE
    assert await kept(clients[0]) == before + 1, "every answer fits: this shows nothing"


async def test_a_drained_node_passes_everything_on_and_keeps_no_text(clients: tuple[AsyncCrewJournal, ...]) -> None:
    one, two = clients
    workspace = owned_by("b", NAMES)
    await two.append({"entry_type": "peer.escalation", "summary": "oil for the press", "workspace_id": workspace})
    await two.recall("oil", workspace_id=workspace)
    assert await kept(two) > 0
    assert (await one.cluster(workspace_id=workspace)).owner == "b"
    drained = {node.name: node for node in (await one.drain_node("b")).nodes}
    assert [(drained[name].slots, drained[name].drained) for name in NAMES] == [(256, False), (0, True)]
    assert (await one.cluster(workspace_id=workspace)).owner == "a"
    crew = await two.register_crew("drained", name="decided by a", workspace_id=workspace)
    assert (await one.crew("drained", workspace_id=workspace)).seq == crew.seq
    assert (await two.recall("oil for the press", workspace_id=workspace)).hits
    assert await kept(two) == 0
    with pytest.raises(InvalidQuery):
        await two.drain_node("a")
    with pytest.raises(NotFound):
        await two.drain_node("c")
    again = await two.drain_node("b", undo=True)
    assert all(node.slots > 40 and not node.drained for node in again.nodes)
    assert (await two.cluster(workspace_id=workspace)).owner == "b"

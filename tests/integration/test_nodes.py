"""Several nodes on one journal: each answers every request, one decides, and another takes over without a person."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.cluster import running_cluster
from support.nats import running_broker
from support.nodes import (
    NodeProcess,
    assigned,
    client_of,
    make_data_dirs,
    owned_by,
    running_nodes,
    start_process,
)
from support.running import running_node

from crew_journal.schemas.core.errors import (
    CrewJournalError,
    DataDirBusy,
    InvalidQuery,
    NotAllowed,
    NotAuthenticated,
    NotOwner,
)
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.journal.broker.broker import ManagedBroker
from crew_journal.services.journal.broker.connection import connect, encode_headers
from crew_journal.services.journal.broker.streams import stream_head
from crew_journal.services.journal.publishing import EncodedMessage, Writer
from crew_journal.services.ownership import FENCE

NAMES = ("a", "b", "c")
TAKEN_OVER_S = 10.0
"""Seconds within which another node decides."""
PAUSE_S = 8.0
ERASED_S = 30.0
KNOWN_S = 2.0
"""Seconds until every node has folded a token."""
AT_ONCE = 12


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ManagedBroker]:
    async with running_broker(tmp_path / "broker") as running:
        yield running


def at(broker: ManagedBroker) -> dict[str, Any]:
    return {"nats": broker.url, "nats_user": broker.user, "nats_password": broker.password}


async def outcomes(calls: list[Awaitable[Any]]) -> tuple[list[Any], list[BaseException]]:
    """Answers and errors of concurrent calls."""
    done = await asyncio.gather(*calls, return_exceptions=True)
    return [it for it in done if not isinstance(it, BaseException)], [
        it for it in done if isinstance(it, BaseException)
    ]


async def until_decided(decide: Callable[[], Awaitable[Any]]) -> float:
    """Repeat a decision until it is made; returns the seconds it took."""
    began = time.monotonic()
    while True:
        try:
            await decide()
        except CrewJournalError:
            await asyncio.sleep(0.2)
        else:
            return time.monotonic() - began


async def is_accepted(client: AsyncCrewJournal) -> bool:
    """Whether the node knows the client's token."""
    try:
        await client.crews()
    except NotAuthenticated:
        return False
    return True


async def verified(client: AsyncCrewJournal) -> bool:
    """Whether the views of a node equal a rebuild."""
    records = [record async for record in client.verify()]
    return bool(records[-1]["result"]["equal"])


async def crews_decided_once(clients: list[AsyncCrewJournal], workspace: str) -> None:
    """Of changes with the same expected sequence through all nodes, one is made."""
    first = await clients[0].register_crew("c1", name="first", workspace_id=workspace)
    seq = first.seq
    for turn in range(3):
        made, refused = await outcomes(
            [
                clients[n % len(clients)].update_crew(
                    "c1", name=f"n{turn}-{n}", expected_seq=seq, workspace_id=workspace
                )
                for n in range(AT_ONCE)
            ]
        )
        assert len(made) == 1, (made, refused)
        assert {type(error).__name__ for error in refused} == {"RegisteredMeanwhile"}
        seq = made[0].seq
        for client in clients:
            await client.count(min_seq=seq, workspace_id=workspace)
            assert (await client.crew("c1", workspace_id=workspace)).seq == seq


async def documents_decided_once(clients: list[AsyncCrewJournal], workspace: str) -> None:
    """Of writes that expect the same version through all nodes, one is stored."""
    first = await clients[0].document_write("WORKSPACE", "replace", "version 1", workspace_id=workspace)
    made, refused = await outcomes(
        [
            clients[n % len(clients)].document_write(
                "WORKSPACE", "replace", f"version {n}", expected_seq=first.seq, workspace_id=workspace
            )
            for n in range(AT_ONCE)
        ]
    )
    assert len(made) == 1, (made, refused)
    assert {type(error).__name__ for error in refused} == {"DocumentConflict"}


async def test_writes_and_decisions_through_any_node_are_made_once(tmp_path: Path, broker: ManagedBroker) -> None:
    async with running_nodes(tmp_path, NAMES, **at(broker)) as nodes, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(client_of(node)) for node in nodes.values()]
        for owner in NAMES:
            workspace = owned_by(owner, NAMES)
            await crews_decided_once(clients, workspace)
            await documents_decided_once(clients, workspace)
            entry = {"id": "e1", "entry_type": "run.completed", "summary": "done once", "workspace_id": workspace}
            receipts = await asyncio.gather(*(client.append(entry) for client in clients * 4))
            assert len({receipt.seq for receipt in receipts}) == 1
            for client in clients:
                counted = await client.count(types=["run.completed"], min_seq=receipts[0].seq, workspace_id=workspace)
                assert counted.count == 1
        shown = (await clients[0].cluster()).nodes
        assert [node.name for node in shown] == list(NAMES)
        assert sum(node.slots for node in shown) == 256
        assert all(node.slots > 40 for node in shown)
        for client in clients:
            assert await verified(client)


class Former:
    """The tenure of a node that does not know yet that it was replaced; implements ``Tenure``."""

    def __init__(self, seq: int) -> None:
        self.seq = seq

    def epoch(self) -> int:
        """The assignment that it knows."""
        return self.seq

    async def renewed(self, refused: int) -> None:
        """The broker refused."""
        raise NotOwner(f"refused under {refused}")


async def test_a_decision_under_a_former_assignment_is_refused_by_the_broker(
    tmp_path: Path, broker: ManagedBroker
) -> None:
    async with running_nodes(tmp_path, NAMES[:2], **at(broker)) as nodes, client_of(nodes["a"]) as client:
        last = (await client.cluster()).assigned_seq
        connection = await connect(broker.url, broker.user, broker.password, "test")
        writer = Writer(connection, atomic=True)
        await writer.open()
        before = await stream_head(connection)
        token = FENCE.set(Former(last - 1))
        try:
            for n in (1, 2):
                messages = [EncodedMessage(f"control.w.x{m}", encode_headers({}), b"{}") for m in range(n)]
                with pytest.raises(NotOwner):
                    await writer.post_atomic(messages)
            assert await stream_head(connection) == before
            FENCE.set(Former(last))
            assert len(await writer.post_atomic(messages)) == len(messages)
        finally:
            FENCE.reset(token)
            await writer.close()
            await connection.close()


async def test_tokens_of_any_node_are_refused_at_every_node_once_revoked(tmp_path: Path, broker: ManagedBroker) -> None:
    async with running_nodes(tmp_path, NAMES[:2], **at(broker)) as nodes, AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(client_of(node)) for node in nodes.values()]
        mine, other = owned_by("a", NAMES[:2]), owned_by("b", NAMES[:2])
        made = await one.create_token("ADMIN", workspace_id=mine)
        for node in nodes.values():
            async with AsyncCrewJournal(node.http_url, token=made.token) as client:
                await until_decided(partial(client.register_crew, "c1", name="ours"))
                for refused in (
                    client.register_crew("c1", name="theirs", workspace_id=other),
                    client.crew("c1", workspace_id=other),
                    client.cluster(),
                ):
                    with pytest.raises(NotAllowed):
                        await refused
        await two.revoke_token(made.token_id)
        for node in nodes.values():
            async with AsyncCrewJournal(node.http_url, token=made.token) as client:
                async with asyncio.timeout(KNOWN_S):
                    while await is_accepted(client):  # noqa: ASYNC110  # another process
                        await asyncio.sleep(0.05)


async def test_an_erasure_leaves_no_text_at_any_node_and_names_the_absent(
    tmp_path: Path, broker: ManagedBroker
) -> None:
    text = "the walrus codename is heliotrope"
    async with AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(running_nodes(tmp_path, NAMES[:2], **at(broker)))
        clients = [await stack.enter_async_context(client_of(node)) for node in nodes.values()]
        kept = await clients[0].append({"entry_type": "run.completed", "summary": text})
        for client in clients:
            await client.count(min_seq=kept.seq)
        erasure = await clients[1].forget(ids=[kept.id], reason="test")
        assert erasure.erasure_id is not None
        async with asyncio.timeout(ERASED_S):
            while (done := await clients[0].erasure(erasure.erasure_id)).state != "completed":  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert done.counts["node a"] == done.counts["node b"] == 1
        for client in clients:
            proof = await client.prove_erased(canary=text)
            assert not proof.files, proof
            assert not proof.views, proof


async def test_a_node_with_another_key_a_taken_name_or_no_name_is_refused(
    tmp_path: Path, broker: ManagedBroker
) -> None:
    async with running_nodes(tmp_path, ("a",), **at(broker)):
        for folder, name, error in (
            ("x", "b", InvalidQuery),
            ("a2", "a", DataDirBusy),
            ("y", None, DataDirBusy),
        ):
            data = tmp_path / folder
            if folder == "a2":
                data.mkdir(mode=0o700)
                (data / "subject.key").write_bytes((tmp_path / "a" / "subject.key").read_bytes())
            with pytest.raises(error):
                async with running_node(data, node=name, **at(broker)):
                    pass


async def test_a_killed_a_stopped_and_a_paused_owner_are_replaced_and_decide_no_more(
    tmp_path: Path, broker: ManagedBroker
) -> None:
    folders = make_data_dirs(tmp_path, NAMES)
    started: dict[str, NodeProcess] = {}
    try:
        starting = [start_process(folders[name], name, broker.url, broker.user, broker.password) for name in NAMES]
        started.update(zip(NAMES, await asyncio.gather(*starting), strict=True))
        async with client_of(started["a"]) as one, client_of(started["c"], timeout_s=60) as paused:
            await assigned(one, NAMES)
            lost = owned_by("b", NAMES)
            await one.register_crew("c1", name="first", workspace_id=lost)
            started["b"].signal(signal.SIGKILL)
            took = await until_decided(lambda: one.register_crew("c1", name="second", workspace_id=lost))
            assert took < TAKEN_OVER_S

            await assigned(one, ("a", "c"))
            zombie = owned_by("c", ("a", "c"))
            before = await one.register_crew("c1", name="before", workspace_id=zombie)
            started["c"].signal(signal.SIGSTOP)
            late = asyncio.create_task(  # it reaches the paused process, which decides when it wakes up, if it may
                paused.update_crew("c1", name="zombie", expected_seq=before.seq, workspace_id=zombie)
            )
            stopped = time.monotonic()
            took = await until_decided(
                lambda: one.update_crew("c1", name="taken over", expected_seq=before.seq, workspace_id=zombie)
            )
            assert took < TAKEN_OVER_S
            await asyncio.sleep(max(0.0, PAUSE_S - (time.monotonic() - stopped)))
            started["c"].signal(signal.SIGCONT)
            with pytest.raises(CrewJournalError):
                await late
            await assigned(one, ("a", "c"))
            assert (await one.crew("c1", workspace_id=zombie)).name == "taken over"

            started["c"].signal(signal.SIGTERM)
            await asyncio.to_thread(started["c"].process.wait)
            took = await until_decided(lambda: one.register_crew("c1", name="alone", workspace_id=zombie))
            assert took < TAKEN_OVER_S
            assert await verified(one)
    finally:
        for node in started.values():
            await node.end()


@pytest.mark.nightly
async def test_nodes_on_three_servers_decide_once_while_a_leader_is_lost(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    async with running_cluster(tmp_path / "cluster") as cluster, AsyncExitStack() as stack:
        given = {"nats": cluster.url, "replicas": 3}
        nodes = await stack.enter_async_context(running_nodes(tmp_path, NAMES[:2], **given))
        clients = [await stack.enter_async_context(client_of(node)) for node in nodes.values()]
        workspace = owned_by("b", NAMES[:2])
        await crews_decided_once(clients, workspace)
        await cluster.kill(await cluster.leader())
        await until_decided(lambda: clients[0].register_crew("c1", name="again", workspace_id=workspace))
        await crews_decided_once(clients, workspace)
        await documents_decided_once(clients, workspace)

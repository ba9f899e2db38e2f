"""Several nodes on one journal: each answers every request, one decides, and another takes over without a person."""

from __future__ import annotations

import asyncio
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
    assigned,
    client_of,
    make_data_dirs,
    owned_by,
    running_nodes,
)
from support.running import running_node

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.projection import Projection
from crew_journal.schemas.core.errors import (
    CrewJournalError,
    DataDirBusy,
    InvalidQuery,
    NotAllowed,
    NotAuthenticated,
    NotOwner,
)
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.cluster.membership import DEAD_S
from crew_journal.services.cluster.routing import RoutedOwnership
from crew_journal.services.journal.broker.broker import ManagedBroker
from crew_journal.services.journal.broker.connection import connect, encode_headers
from crew_journal.services.journal.broker.streams import stream_head
from crew_journal.services.journal.publishing import EncodedMessage, Writer
from crew_journal.services.ownership import FENCE
from crew_journal.services.runtime import views

NAMES = ("a", "b", "c")
ERASED_S = 30.0
KNOWN_S = 2.0
"""Seconds until every node has folded a token."""
ANSWERED_S = 5.0
"""Seconds without an answer to a search after a fault."""
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
    async with running_node(tmp_path / "a", node="a", **at(broker)) as alone, client_of(alone) as client:
        await assigned(client, NAMES[:1])
        more = await client.append({"entry_type": "run.completed", "summary": text})
        await client.count(min_seq=more.seq)
        erasure = await client.forget(ids=[more.id], reason="test")
        assert erasure.erasure_id is not None
        async with asyncio.timeout(ERASED_S):
            while (done := await client.erasure(erasure.erasure_id)).state != "completed":  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert "node b" not in done.counts
        assert any("node b" in place for place in done.not_proven)


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


async def test_a_node_beside_one_that_was_started_without_a_name_is_refused(
    tmp_path: Path, broker: ManagedBroker
) -> None:
    folders = make_data_dirs(tmp_path, NAMES[:2])
    async with running_node(folders["a"], **at(broker)):
        for name in ("b", None):
            with pytest.raises(DataDirBusy):
                async with running_node(folders["b"], node=name, **at(broker)):
                    pass
    async with running_node(folders["a"], node="a", **at(broker)):
        pass


async def test_a_search_whose_answer_is_lost_with_a_connection_is_answered_by_the_node_that_was_asked(
    tmp_path: Path, broker: ManagedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    members: dict[str, RoutedOwnership] = {}
    serve = RoutedOwnership.serve

    async def noted(self: RoutedOwnership, *given: Any) -> None:
        members[self.name] = self
        await serve(self, *given)

    monkeypatch.setattr(RoutedOwnership, "serve", noted)
    async with running_nodes(tmp_path, NAMES[:2], **at(broker)) as nodes, client_of(nodes["a"]) as client:
        workspace, asked = owned_by("b", NAMES[:2]), asyncio.Event()
        note = {"entry_type": "run.completed", "summary": "the mill is sold", "workspace_id": workspace}
        seq = (await client.append(note)).seq

        async def lost(_message: Any) -> None:
            asked.set()

        monkeypatch.setattr(members["b"], "_answer", lost)
        for name in NAMES[:2]:
            asked.clear()
            recall = asyncio.create_task(client.recall("mill", min_seq=seq, workspace_id=workspace))
            await asked.wait()
            members[name].client._transport.close()  # type: ignore[union-attr]  # nats-py connects again
            async with asyncio.timeout(ANSWERED_S):
                assert (await recall).hits


async def test_a_stopped_owner_is_replaced_at_once(tmp_path: Path, broker: ManagedBroker) -> None:
    folders = make_data_dirs(tmp_path, NAMES[:2])
    async with running_node(folders["a"], node="a", **at(broker)) as stays, client_of(stays) as one:
        lost = owned_by("b", NAMES[:2])
        async with running_node(folders["b"], node="b", **at(broker)):
            await assigned(one, NAMES[:2])
            await one.register_crew("c1", name="first", workspace_id=lost)
        took = await until_decided(lambda: one.register_crew("c1", name="alone", workspace_id=lost))
        assert took < DEAD_S, "it was taken for lost, though it said that it leaves"
        assert await verified(one)


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


async def test_a_node_with_a_newer_view_joins_beside_an_older_one(
    tmp_path: Path, broker: ManagedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rolling upgrade: drain, stop, start the new version; the nodes answer alike meanwhile."""
    folders = make_data_dirs(tmp_path, NAMES[:2])
    workspace = owned_by("b", NAMES[:2])
    async with running_node(folders["a"], node="a", **at(broker)) as old, client_of(old) as one:
        async with running_node(folders["b"], node="b", **at(broker)) as before, client_of(before) as two:
            await assigned(one, NAMES[:2])
            note = {"entry_type": "run.completed", "summary": "upgraded without a pause", "workspace_id": workspace}
            await one.append_batch([note] * 20)
            await two.drain_node("b")
        seq = (await one.append(note)).seq

        def newer() -> tuple[Projection, ...]:
            projections = discover_projections()
            for projection in projections:
                if projection.name == "entries":
                    setattr(projection, "version", projection.version + 1)  # noqa: B010  # a class variable
            return projections

        monkeypatch.setattr(views, "discover_projections", newer)
        async with running_node(folders["b"], node="b", **at(broker)) as new, client_of(new) as two:
            await assigned(one, NAMES[:2])
            versions = [(await client.status())["projections"]["entries"]["version"] for client in (one, two)]
            assert versions[0] + 1 == versions[1]
            assert (await two.cluster(workspace_id=workspace)).owner == "b"
            for client in (one, two):
                counted = await client.count(types=["run.completed"], min_seq=seq, workspace_id=workspace)
                assert counted.count == 21
                assert (await client.recall("upgraded", workspace_id=workspace)).hits
                assert await verified(client)

"""Three nats-servers and three nodes under load while one after the other fails: nothing acknowledged is lost or doubled.

The clients do what a load balancer does: a request without an answer is sent to another node, an append under its id, and
the node that did not answer is asked last for some seconds.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from bisect import bisect
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from support.cluster import Cluster, running_cluster
from support.flaky import Flaky, flaky_proxy
from support.nodes import NodeProcess, assigned, client_of, make_data_dirs, start_process

from crew_journal.consumers.feed.replay import replay
from crew_journal.schemas.access.events import CrewRegistered
from crew_journal.schemas.core.envelope import EntryRecorded
from crew_journal.schemas.core.errors import CrewJournalError
from crew_journal.schemas.decode import decode
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.journal.broker.connection import connect
from crew_journal.services.journal.broker.streams import stream_head

NAMES: Final = ("a", "b", "c")
CUT: Final = "c"
"""The node behind the proxies."""
CLIENTS: Final = 8
WORKSPACES: Final = tuple(f"w{n}" for n in range(60))
BUSIEST: Final = WORKSPACES[0]
BUSY_SHARE: Final = 0.3
DECISION_EVERY: Final = 8
"""Batches of a client between two decisions."""
RECENT: Final = 5_000
"""Entries among which one is asked for."""
TRY_S: Final = 1.5
"""Seconds until a client asks another node."""
SPARED_S: Final = 3.0
"""Seconds for which a node that did not answer is asked last."""
LATE_S: Final = 10.0
"""Seconds of entries that a client sends later if it could not send them."""
ANSWERED_S: Final = 5.0
OLD_S: Final = 1.5
"""Age of the entries that are asked for: every node that is not cut off has folded them."""
TAKEN_OVER_S: Final = 10.0
"""Seconds within which another node decides."""
AGAIN_S: Final = 0.1
CALM_S: Final = 1.0
"""Seconds between the end of a fault and the next one."""
GIVEN_UP_S: Final = 90.0
COMPARED_AT_MOST: Final = 4
"""Attempts to compare the views of all nodes as of one sequence."""


@dataclass(frozen=True)
class Entry:
    """An acknowledged entry."""

    at: float
    workspace: str
    id: str
    seq: int


@dataclass(frozen=True)
class Decision:
    """An acknowledged change of a crew: its name, the sequence that it replaced, and its own."""

    workspace: str
    name: str
    expected: int
    seq: int


class Unanswered(Exception):
    """No node answers."""


@dataclass
class Load:
    """What the clients do, and what they were told."""

    nodes: dict[str, NodeProcess]
    appends_s: float
    recalls_s: float
    batch: int
    chance: random.Random = field(default_factory=lambda: random.Random(35))
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    acked: list[Entry] = field(default_factory=list)
    decided: list[Decision] = field(default_factory=list)
    refused: int = 0
    slowest: tuple[float, str] = (0.0, "")
    reads: int = 0
    fault: str = "none"
    spared: dict[str, float] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def __str__(self) -> str:
        seconds = time.monotonic() - self.began
        rates = f"{len(self.acked) / seconds:.0f} entries and {self.reads / seconds:.1f} recalls a second"
        done = (
            f"{len(self.acked)} entries, {len(self.decided)} decisions ({self.refused} refused), {self.reads} recalls"
        )
        return (
            f"{done} in {seconds:.0f} s, {rates}; longest without an answer {self.slowest[0]:.2f} s ({self.slowest[1]})"
        )

    async def once(self, http: httpx.AsyncClient, node: NodeProcess, path: str, **given: Any) -> httpx.Response:
        """Ask one node; raises ``Unanswered`` if it does not answer or cannot now."""
        headers = {"Authorization": f"Bearer {node.owner_token}"}
        try:
            answer = await http.request(given.pop("method", "POST"), node.http_url + path, headers=headers, **given)
        except httpx.HTTPError as error:
            raise Unanswered(type(error).__name__) from None
        if answer.status_code >= 500:
            raise Unanswered(answer.text)
        return answer

    async def anywhere(self, http: httpx.AsyncClient, path: str, **given: Any) -> httpx.Response:
        """Ask one node after the other until one answers."""
        async with asyncio.timeout(GIVEN_UP_S):
            while True:
                nodes = self.chance.sample(list(self.nodes), len(self.nodes))
                for name in sorted(nodes, key=lambda name: self.spared.get(name, 0.0) > time.monotonic()):
                    try:
                        return await self.once(http, self.nodes[name], path, **given)
                    except Unanswered:
                        self.spared[name] = time.monotonic() + SPARED_S
                        await asyncio.sleep(AGAIN_S)

    async def write(self, number: int) -> None:
        """Append batches at a rate, and decide now and then."""
        async with httpx.AsyncClient(timeout=TRY_S) as http:
            n, due = 0, time.monotonic()
            while not self.stop.is_set():
                due = max(due + CLIENTS * self.batch / self.appends_s, time.monotonic() - LATE_S)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                busy = self.chance.random() < BUSY_SHARE
                workspace = BUSIEST if busy else self.chance.choice(WORKSPACES)
                names = [f"{number}x{n}x{place}" for place in range(self.batch)]
                entries = [
                    {"id": f"e{name}", "entry_type": "run.completed", "summary": f"walrus{name} is done"}
                    | {"workspace_id": workspace}
                    for name in names
                ]
                answer = await self.anywhere(http, "/v1/journal", json=entries)
                assert answer.status_code == 201, answer.text
                stored = answer.json()["entries"]
                assert [entry["id"] for entry in stored] == [f"e{name}" for name in names]
                at = time.monotonic()
                self.acked += (Entry(at, workspace, entry["id"], entry["seq"]) for entry in stored)
                n += 1
                if n % DECISION_EVERY == 0:
                    await self.decide(http, WORKSPACES[number % (CLIENTS // 2)], f"d{number}-{n}")

    async def decide(self, http: httpx.AsyncClient, workspace: str, name: str) -> None:
        """Rename a crew that another client renames, too; only what is acknowledged is known to be stored."""
        where = {"workspace_id": workspace}
        expected = (await self.anywhere(http, "/v1/crews/c", method="GET", params=where)).json()["seq"]
        node = self.chance.choice(list(self.nodes.values()))
        change = {"name": name, "expected_seq": expected, **where}
        try:
            answer = await self.once(http, node, "/v1/crews/c", json=change)
        except Unanswered:
            return
        if answer.status_code == 200:
            self.decided.append(Decision(workspace, name, expected, answer.json()["seq"]))
        else:
            assert answer.status_code == 409, answer.text
            self.refused += 1

    async def read(self) -> None:
        """Recall entries that are stored, at a rate; keeps the longest time without an answer."""
        async with httpx.AsyncClient(timeout=TRY_S) as http:
            due = time.monotonic()
            while not self.stop.is_set():
                due = max(due + CLIENTS / self.recalls_s, time.monotonic() - 1.0)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                old = bisect(self.acked, time.monotonic() - OLD_S, key=lambda entry: entry.at)
                if not old:
                    continue
                wanted = self.acked[self.chance.randrange(max(0, old - RECENT), old)]
                asked = {"query": f"walrus{wanted.id[1:]}", "workspace_id": wanted.workspace, "min_seq": wanted.seq}
                began, during = time.monotonic(), self.fault
                answer = await self.anywhere(http, "/v1/recall", json=asked)
                took = time.monotonic() - began
                assert answer.status_code == 200, answer.text
                found = answer.json()
                assert wanted.id in [hit["entry_id"] for hit in found["hits"]], (wanted, found)
                assert found["view_seq"] >= wanted.seq
                self.slowest = max(self.slowest, (took, during))
                self.reads += 1


@dataclass
class World:
    """The cluster, the nodes, and the load on them."""

    cluster: Cluster
    folders: dict[str, Path]
    proxies: list[Flaky]
    load: Load

    @property
    def nodes(self) -> dict[str, NodeProcess]:
        """The running nodes by name."""
        return self.load.nodes

    async def start(self, name: str) -> None:
        """Start a node, and return when all act with it."""
        nats = ",".join(proxy.url for proxy in self.proxies) if name == CUT else self.cluster.url
        self.nodes[name] = await start_process(self.folders[name], name, nats, None, None, "--replicas", "3")

    async def whole(self, *, but: str = "") -> None:
        """Return when every node, except one that does not answer, acts with all others."""
        running = {name: node for name, node in self.nodes.items() if name != but}
        for node in running.values():
            async with client_of(node) as client:
                await assigned(client, tuple(running))

    async def owner(self, workspace: str) -> str:
        """The node that owns a workspace."""
        async with client_of(next(iter(self.nodes.values()))) as client:
            owner = (await client.cluster(workspace_id=workspace)).owner
        assert owner is not None
        return owner

    # faults

    async def kill_node(self, name: str) -> None:
        """A node is killed; another takes over; it comes back."""
        await self.nodes[name].end()
        began = time.monotonic()
        async with client_of(next(node for other, node in self.nodes.items() if other != name)) as client:
            while not await self.decided(client):  # noqa: ASYNC110  # another process
                await asyncio.sleep(AGAIN_S)
        assert time.monotonic() - began < TAKEN_OVER_S
        await self.whole(but=name)
        await self.start(name)
        await self.whole()

    async def decided(self, client: AsyncCrewJournal) -> bool:
        """Whether a decision for the busiest workspace is made."""
        try:
            await client.register_crew("again", name="again", workspace_id=BUSIEST)
        except CrewJournalError:
            return False
        return True

    async def kill_leader(self) -> None:
        """The server that leads the stream is killed and comes back."""
        leader = await self.cluster.leader()
        await self.cluster.kill(leader)
        await self.cluster.leader()
        before = len(self.load.acked)
        async with asyncio.timeout(GIVEN_UP_S):
            while len(self.load.acked) < before + CLIENTS:  # noqa: ASYNC110  # other tasks append
                await asyncio.sleep(AGAIN_S)
        await self.cluster.start(leader)
        await self.cluster.whole()

    async def pause_owner(self, seconds: float) -> None:
        """The owner of the busiest workspace is paused while it has a decision to make, and wakes up replaced."""
        name = await self.owner(BUSIEST)
        zombie = self.nodes[name]
        async with client_of(zombie, timeout_s=seconds + GIVEN_UP_S) as there:
            seq = (await there.crew("c", workspace_id=BUSIEST)).seq
            zombie.signal(signal.SIGSTOP)
            late = asyncio.create_task(
                there.update_crew("c", name="zombie", expected_seq=seq, workspace_id=BUSIEST), name="late"
            )
            await asyncio.sleep(seconds)
            await self.whole(but=name)
            zombie.signal(signal.SIGCONT)
            try:
                made = await late
            except CrewJournalError:
                pass
            else:
                self.load.decided.append(Decision(BUSIEST, "zombie", seq, made.seq))
        await self.whole()

    async def cut_off(self, seconds: float) -> None:
        """A node loses its connections to the servers without notice; what it has sent arrives late."""
        for proxy in self.proxies:
            proxy.passes.clear()
        await asyncio.sleep(seconds)
        for proxy in self.proxies:
            proxy.passes.set()
        await self.whole()


@asynccontextmanager
async def running_world(directory: Path, appends_s: float, recalls_s: float, batch: int) -> AsyncIterator[World]:
    """Three servers and three nodes under load; checked when the block is left."""
    (directory / "cluster").mkdir()
    folders = make_data_dirs(directory, NAMES)
    load = Load({}, appends_s, recalls_s, batch)
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(running_cluster(directory / "cluster"))
        proxies = [await stack.enter_async_context(flaky_proxy(url)) for url in cluster.url.split(",")]
        world = World(cluster, folders, proxies, load)
        try:
            await world.start(NAMES[0])
            await asyncio.gather(*map(world.start, NAMES[1:]))
            await world.whole()
            async with client_of(world.nodes["a"]) as client:
                for workspace in WORKSPACES[: CLIENTS // 2]:
                    await client.register_crew("c", name="first", workspace_id=workspace)
            load.began = time.monotonic()
            async with asyncio.TaskGroup() as tasks:
                for number in range(CLIENTS):
                    tasks.create_task(load.write(number))
                    tasks.create_task(load.read())
                try:
                    yield world
                finally:
                    load.stop.set()
            await check(world)
        finally:
            for node in world.nodes.values():
                await node.end()


async def check(world: World) -> None:
    """Nothing is lost or doubled, and every node has the views that a rebuild makes."""
    load = world.load
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(client_of(node)) for node in world.nodes.values()]
        last = await clients[0].append({"entry_type": "run.started", "summary": "the end", "workspace_id": BUSIEST})
        acked = Counter((entry.workspace, entry.id) for entry in load.acked)
        assert len(acked) == len(load.acked)
        for _ in range(COMPARED_AT_MOST):
            views = await asyncio.gather(*(verified(client, last.seq) for client in clients))
            if len({seq for view in views for seq, _ in view.values()}) == 1:  # else receipts came meanwhile
                break
        assert views[0] == views[1] == views[2]
        for client in clients[:1]:  # all have the same views
            kept: Counter[tuple[str, str]] = Counter()
            for workspace in {entry.workspace for entry in load.acked}:
                async for entry in client.entries(workspace_id=workspace, types=["run.completed"], min_seq=last.seq):
                    kept[workspace, entry.id] += 1
            assert kept == acked
    await check_decisions(world, load)


async def verified(client: AsyncCrewJournal, seq: int) -> dict[str, tuple[int, str]]:
    """Sequence and digest of each view of a node, which equal those of a rebuild."""
    await client.count(min_seq=seq)
    result = [record async for record in client.verify()][-1]["result"]
    assert result["equal"], result
    return {view["projection"]: (view["seq"], view["live"]["digest"]) for view in result["projections"]}


async def check_decisions(world: World, load: Load) -> None:
    """Each acknowledged decision is stored once, right after the one that it replaced."""
    stored: dict[str, list[tuple[int, str]]] = {}
    client = await connect(world.cluster.url, None, None, "check")
    try:
        async with aclosing(replay(client, 1, await stream_head(client))) as batches:
            async for batch in batches:
                for message in batch:
                    event = decode(message.seq, message.subject, message.headers, message.data, message.published_ms)
                    if isinstance(event, EntryRecorded) and event.entry.entry_type == CrewRegistered.ENTRY_TYPE:
                        if event.entry.payload["crew_id"] != "c":
                            continue
                        name = str(event.entry.payload["name"])
                        stored.setdefault(event.workspace_id, []).append((event.seq, name))
    finally:
        await client.close()
    names = Counter((workspace, name) for workspace, made in stored.items() for _, name in made)
    assert set(names.values()) == {1}, names.most_common(3)
    before = {(w, seq): earlier for w, made in stored.items() for (earlier, _), (seq, _) in pairwise(made)}
    for decision in load.decided:
        assert (decision.seq, decision.name) in stored[decision.workspace]
        assert before[decision.workspace, decision.seq] == decision.expected, decision
    assert load.decided


async def run_faults(world: World, faults: Mapping[str, Callable[[], Awaitable[None]]]) -> None:
    """One fault after the other; each comes when everything runs again."""
    load = world.load
    for name, fault in faults.items():
        load.fault, began = name, time.monotonic()
        await fault()
        print(f"{name}: {time.monotonic() - began:.1f} s until whole;", load)
        load.fault = f"after {name}"
        await asyncio.sleep(CALM_S)
    assert load.reads > 0
    assert load.slowest[0] <= ANSWERED_S, load.slowest


async def test_nothing_is_lost_or_doubled_while_owner_and_leader_are_lost_and_a_paused_owner_wakes_up(
    tmp_path: Path,
) -> None:
    async with running_world(tmp_path, 40, 6, 4) as world:
        faults = {
            "killed owner": lambda: _kill_owner(world),
            "killed leader": world.kill_leader,
            "paused owner": lambda: world.pause_owner(5.0),
        }
        await run_faults(world, faults)


async def _kill_owner(world: World) -> None:
    await world.kill_node(await world.owner(BUSIEST))


LONG_S: Final = 600.0


@pytest.mark.nightly
@pytest.mark.timeout(1_500)
async def test_ten_minutes_of_load_and_every_fault(tmp_path: Path) -> None:
    async with running_world(tmp_path, 500, 20, 25) as world:
        ends = time.monotonic() + LONG_S
        while time.monotonic() < ends:
            faults = {
                "killed node": lambda: world.kill_node("b"),
                "killed owner": lambda: _kill_owner(world),
                "killed leader": world.kill_leader,
                "paused owner": lambda: world.pause_owner(30.0),
                "cut off": lambda: world.cut_off(20.0),
            }
            await run_faults(world, faults)

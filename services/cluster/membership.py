"""The nodes of a journal: who is live, and who decides for which workspace.

Each node says twice a second that it is live. The live node with the lowest name records a change of the live nodes as an
assignment in the journal (``cluster.assigned``), under the condition that it follows the last one. A node acts under an
assignment once its views have folded it.

Invariants: the broker stores a decision only if no later assignment is stored (``services/ownership``). All decisions of a
former owner are therefore before the assignment, and the new owner has folded them when it begins to decide. No clock
decides who may; the clock only decides when a silent node is taken for lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import orjson
import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from ...schemas.cluster.events import ClusterAssigned
from ...schemas.cluster.operations import ClusterAnswer, NodeShown
from ...schemas.cluster.slots import SLOTS, first_two_of_all, slot_of
from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.errors import BrokerError, CrewJournalError, DataDirBusy, InvalidQuery, NotOwner
from ...schemas.core.ids import SYSTEM_WORKSPACE, uuid7_hex
from ...schemas.core.ports import CommittedBatch, ViewReader
from ...schemas.core.timestamps import to_ms
from ...schemas.entries.tables import ADMISSION_PROJECTION, ENTRIES
from ..journal.broker.connection import BrokerConnection
from ..journal.intake.append import decision_entry
from ..journal.publishing import Writer, WrongLastSequence
from ..ownership import FENCE, Ownership
from ..parts import Part, end_task

ALIVE: Final = "cluster.alive"
"""Subject on which nodes say that they are live."""
NODES: Final = "cluster.nodes"
"""Subject on which any live node answers with the names of the nodes."""
UNNAMED: Final = ""
"""Answered there by a node that runs alone, and decides everything without a condition."""
HEARTBEAT_S: Final = 0.5
"""Seconds between two heartbeats."""
DEAD_S: Final = 4.0
"""Seconds of silence after which a node is taken for lost: a rebuild may keep the event loop busy for a second."""
LATE_S: Final = 2.0
"""Seconds between two of its own checks after which a node knows nothing of the others, because it was paused."""
PROBE_S: Final = 2.0
"""Seconds for the answer of a node that may run."""
RENEW_S: Final = 5.0
"""Seconds until the views of an owner have folded an assignment that the broker has."""
MINIMUM_SERVER: Final = (2, 12)
"""The first nats-server that checks the last sequence of another subject."""
_ASSIGNED: Final = f"""FROM {ENTRIES} WHERE workspace_id = '{SYSTEM_WORKSPACE}' AND control
    AND entry_type = '{ClusterAssigned.ENTRY_TYPE}'"""
_LAST: Final = f"SELECT seq, payload {_ASSIGNED} ORDER BY seq DESC LIMIT 1"
_SINCE: Final = f"SELECT payload {_ASSIGNED} AND seq >= coalesce((SELECT max(seq) {_ASSIGNED} AND ts_ms <= ?), 0)"
"""The assignment that held at a time, and the later ones."""
RETIRED_S: Final = 90 * 86_400
"""Seconds after which a node that has not come back counts as taken out of service."""
_log = structlog.get_logger(__name__)


def key_check(subject_key: bytes) -> str:
    """A hash by which nodes compare their keys of people's names, without revealing them."""
    return hashlib.blake2b(b"crew-journal cluster", key=subject_key, digest_size=8).hexdigest()


@dataclass(slots=True)
class Peer:
    """A node that said it is live: what it said, and when by this node's monotonic clock."""

    heard: float
    run: str = ""
    http: str | None = None
    version: str | None = None
    view_seq: int | None = None
    drained: bool = False
    reconnects: int = 0


@dataclass(frozen=True, slots=True)
class Assignment:
    """The nodes that decide since a sequence.

    Attributes:
        seq: The sequence.
        nodes: Their names.
        of_slots: Of each slot, its owner and the node that would be the next one.
    """

    seq: int = 0
    nodes: tuple[str, ...] = ()
    of_slots: tuple[tuple[str, ...], ...] = ((),) * SLOTS


class SlotTenure:
    """The time since a node gained a slot; implements ``ownership.Tenure``."""

    def __init__(self, members: Members, slot: int, since: int) -> None:
        self._members = members
        self._slot = slot
        self._since = since

    def epoch(self) -> int:
        """See ``Tenure.epoch``."""
        if self._members.gained.get(self._slot) != self._since:
            raise not_owner()
        return self._members.assignment.seq

    async def renewed(self, refused: int) -> None:
        """See ``Tenure.renewed``."""
        await self._members.after(refused)
        self.epoch()


def not_owner() -> NotOwner:
    """The error of a node that lost a slot, or does not know yet who has it."""
    return NotOwner(
        "the node that decides for this workspace has changed; the change may or may not be stored",
        hint="repeat the request in a second: with an id, or an expected version, it takes effect once",
    )


class Members(Part, Ownership):
    """This node among the others.

    Args:
        name: Its name.
        client: A connection of its own.
        writer: Records assignments.
        views: Tell which assignments are folded.
        subject_key: The key of people's names, which all nodes share.
        version: Of the software.
        clock: The time, UTC, for records.
        http: Where this node answers; called when it does.
        give_up: Called when another node of the same name runs.

    Attributes:
        assignment: The last one that the views have folded.
        drained: Whether this node shall have no slots, until it is started again.
        gained: Slot of this node → sequence of the assignment that gave it.
        on_change: Called after each change of the assignment.
    """

    def __init__(
        self,
        name: str,
        client: BrokerConnection,
        writer: Writer,
        views: ViewReader,
        *,
        subject_key: bytes,
        version: str,
        clock: Callable[[], datetime],
        http: Callable[[], str],
        give_up: Callable[[CrewJournalError], None],
    ) -> None:
        self.name = name
        self.client = client
        self.assignment = Assignment()
        self.drained = False
        self.gained: dict[int, int] = {}
        self.on_change: list[Callable[[], None]] = []
        self._writer = writer
        self._views = views
        self._key_check = key_check(subject_key)
        self._version = version
        self._clock = clock
        self._http = http
        self._give_up = give_up
        self._run = uuid7_hex()
        self._is_fresh = True  # until an assignment of this run, which ends the decisions of an earlier one
        self._peers: dict[str, Peer] = {}
        self._looked = 0.0
        self._generation = -1
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stack = contextlib.AsyncExitStack()

    # before the node answers

    async def check(self) -> None:
        """Check that this node may take part.

        Raises:
            BrokerError: If the broker is too old.
            InvalidQuery: If the journal names people by another key.
            DataDirBusy: If a node of this name runs.
        """
        server = self.client.connected_server_version
        if (server.major, server.minor) < MINIMUM_SERVER:
            raise BrokerError("several nodes need nats-server 2.12 or newer", hint="upgrade it, or run one node")
        for _, payload in await asyncio.to_thread(self._views.rows, _LAST):
            if ClusterAssigned.model_validate_json(payload).key_check != self._key_check:
                raise InvalidQuery(
                    "subject.key of this data directory is not the key of the journal's nodes",
                    hint="copy subject.key and admin.token from the data directory of another node, then start again",
                )
        running = await live_nodes(self.client)
        if UNNAMED in running:
            raise DataDirBusy(
                "a node without a name runs on this journal", hint="stop it, and start it again with --node NAME"
            )
        if self.name in running:
            raise DataDirBusy(
                f"a node named {self.name} runs on this journal", hint="give each node a --node of its own"
            )

    # as a part of the node

    async def start(self) -> None:
        """Take part."""
        self._stack.callback(self._views.subscribe(self._committed))
        self._stack.callback(self.client.on_reconnect(self._excuse_all))
        await self._reload()
        self._excuse_all()
        for subject, take in ((ALIVE, self._hear), (NODES, self._name_nodes)):
            subscription = await self.client.subscribe(subject, cb=take)
            self._stack.push_async_callback(_unsubscribed, subscription)
        self._task = asyncio.create_task(self._run_loop(), name="cluster")

    async def stop(self) -> None:
        """Leave: the others take over at once."""
        await end_task(self._task)
        with contextlib.suppress(NatsError):
            await self.client.publish(ALIVE, orjson.dumps({"name": self.name, "run": self._run, "leaves": True}))
            await self.client.flush()
        await self._stack.aclose()

    def figures(self) -> Mapping[str, Any]:
        """Its section of status."""
        nodes = self.shown()
        return {
            "node": nodes.node,
            "assigned_seq": nodes.assigned_seq,
            "nodes": [node.model_dump() for node in nodes.nodes],
        }

    @property
    def trouble(self) -> str | None:
        """Nothing: a node without slots answers, too."""
        return None

    def shown(self, workspace_id: str | None = None) -> ClusterAnswer:
        """All nodes, and the owner of a workspace."""
        now, mine = time.monotonic(), self.assignment
        head = max([self._seen_to(), *(peer.view_seq or 0 for peer in self._peers.values())])
        nodes = []
        for name in sorted({*mine.nodes, *self._live(now)}):
            peer = self._peers.get(name)
            seen_to = self._seen_to() if name == self.name else peer.view_seq if peer is not None else None
            nodes.append(
                NodeShown(
                    name=name,
                    here=name == self.name,
                    assigned=name in mine.nodes,
                    drained=self._is_drained(name),
                    slots=sum(names[:1] == (name,) for names in mine.of_slots),
                    http=self._http() if name == self.name else peer.http if peer is not None else None,
                    version=self._version if name == self.name else peer.version if peer is not None else None,
                    view_seq=seen_to,
                    lag=None if seen_to is None else head - seen_to,
                    heard_s=None if peer is None else round(max(0.0, now - peer.heard), 1),
                )
            )
        answer = ClusterAnswer(node=self.name, assigned_seq=mine.seq, nodes=tuple(nodes))
        if workspace_id is None:
            return answer
        return answer.model_copy(update={"slot": slot_of(workspace_id), "owner": self.owner(workspace_id)})

    async def others(self) -> frozenset[str]:
        """The other nodes that are live, or have taken part within ``RETIRED_S``."""
        since = to_ms(self._clock()) - 1_000 * RETIRED_S
        rows = await asyncio.to_thread(self._views.rows, _SINCE, [since])
        known = {name for (payload,) in rows for name in ClusterAssigned.model_validate_json(payload).nodes}
        return frozenset({*known, *self._live(time.monotonic())} - {self.name})

    # ownership

    def owner(self, workspace_id: str) -> str | None:
        """The node that decides for a workspace; None before the first assignment."""
        return next(iter(self.searching(workspace_id)), None)

    def searching(self, workspace_id: str) -> tuple[str, ...]:
        """The nodes that search a workspace: its owner, and the next one while the owner is silent or still loads."""
        return self.assignment.of_slots[slot_of(workspace_id)]

    def may_keep(self, workspace_id: str) -> bool:
        """Whether this node may keep the texts of a workspace in memory."""
        return self.name in (self.searching(workspace_id) or (self.name,))

    def tenure(self, workspace_id: str) -> SlotTenure | None:
        """The tenure of this node for a workspace; None if another node decides."""
        slot = slot_of(workspace_id)
        since = self.gained.get(slot)
        return None if since is None else SlotTenure(self, slot, since)

    def hold(self, workspace_id: str) -> bool:
        """See ``Ownership.hold``."""
        tenure = self.tenure(workspace_id)
        if tenure is not None:
            FENCE.set(tenure)
        return tenure is not None

    async def after(self, seq: int) -> None:
        """Return when an assignment after ``seq`` is folded; raises ``NotOwner`` if that takes too long."""
        try:
            async with asyncio.timeout(RENEW_S):
                while self.assignment.seq <= seq:
                    await self.change()
        except TimeoutError:
            raise not_owner() from None

    async def change(self) -> None:
        """Return at the next change of the assignment."""
        await self._changed.wait()

    # the heartbeat

    async def _run_loop(self) -> None:
        while True:
            try:
                await self._look()
            except (NatsError, CrewJournalError, TimeoutError) as error:
                _log.warning("cluster.waits", error=type(error).__name__)
            except Exception:
                _log.exception("cluster.failed")
            await asyncio.sleep(HEARTBEAT_S)

    async def _look(self) -> None:
        if self._views.generation != self._generation:
            await self._reload()
        now = time.monotonic()
        if now - self._looked > LATE_S:
            self._excuse_all()  # it was paused, or has just started: it does not know who is live
        self._looked = now
        await self.say_alive()
        live = self._live(now)
        deciding = tuple(name for name in live if not self._is_drained(name)) or live
        due = deciding != self.assignment.nodes and live[0] == self.name
        due = due or (self._is_fresh and self.name in self.assignment.nodes)
        if due and self.client.is_connected:
            await self._assign(deciding)

    async def say_alive(self) -> None:
        """Send a heartbeat."""
        alive = {
            "name": self.name,
            "run": self._run,
            "http": self._http(),
            "version": self._version,
            "view_seq": self._seen_to(),
            "drained": self.drained,
            "reconnects": self.client.state.reconnects,
        }
        await self.client.publish(ALIVE, orjson.dumps(alive))

    def _is_drained(self, name: str) -> bool:
        if name == self.name:
            return self.drained
        peer = self._peers.get(name)
        return peer is not None and peer.drained

    def _live(self, now: float) -> tuple[str, ...]:
        return tuple(sorted({self.name, *(name for name, peer in self._peers.items() if now - peer.heard <= DEAD_S)}))

    async def _assign(self, live: tuple[str, ...]) -> None:
        payload = ClusterAssigned(nodes=live, key_check=self._key_check)
        summary = f"{', '.join(live)} decide from here on"
        entry = decision_entry(SYSTEM_WORKSPACE, payload, summary, self._clock())
        with contextlib.suppress(WrongLastSequence):  # another node was quicker; its assignment is folded soon
            await self._writer.post_expecting(entry, self.assignment.seq)
            _log.info("cluster.assigned", nodes=live)

    def _excuse_all(self) -> None:
        """Give every node time to be heard again."""
        now = time.monotonic()
        for name in {*self.assignment.nodes, *self._peers} - {self.name}:
            self._peers.setdefault(name, Peer(now)).heard = now

    async def _hear(self, message: Msg) -> None:
        said = orjson.loads(message.data)
        name, run = str(said["name"]), str(said["run"])
        if name == self.name:
            if run != self._run and run > self._run and not said.get("leaves"):
                self._give_up(DataDirBusy(f"another node named {name} runs on this journal", hint="rename one of them"))
            return
        if said.get("leaves"):
            known = self._peers.get(name)
            if known is not None and known.run in ("", run):
                del self._peers[name]
            return
        drained, reconnects = bool(said.get("drained")), int(said.get("reconnects", 0))  # earlier versions lack both
        self._peers[name] = Peer(
            time.monotonic(), run, said["http"], said["version"], said["view_seq"], drained, reconnects
        )

    async def _name_nodes(self, message: Msg) -> None:
        await message.respond(orjson.dumps(self._live(time.monotonic())))

    def _seen_to(self) -> int:
        return self._views.view_seq(ADMISSION_PROJECTION)

    # the assignment

    def _committed(self, batch: CommittedBatch) -> None:
        for event in batch.entries:
            if event.control and event.entry.entry_type == ClusterAssigned.ENTRY_TYPE:
                self._take(event)

    def _take(self, event: EntryRecorded) -> None:
        if event.workspace_id == SYSTEM_WORKSPACE and event.seq > self.assignment.seq:
            self._become(event.seq, ClusterAssigned.model_validate(event.entry.payload), kept=True)

    async def _reload(self) -> None:
        """Read the last assignment after the views were replaced or read in bulk, which subscribers are not told."""
        self._generation = self._views.generation
        for seq, payload in await asyncio.to_thread(self._views.rows, _LAST):
            if seq > self.assignment.seq:
                self._become(int(seq), ClusterAssigned.model_validate_json(payload), kept=False)

    def _become(self, seq: int, assigned: ClusterAssigned, *, kept: bool) -> None:
        """Act under an assignment; ``kept`` if it is known to be the next one, so that this node's slots were never lost."""
        if kept and self.name in assigned.nodes:
            self._is_fresh = False
        self.assignment = Assignment(seq, assigned.nodes, first_two_of_all(assigned.nodes))
        mine = [slot for slot, names in enumerate(self.assignment.of_slots) if names[:1] == (self.name,)]
        before = self.gained if kept else {}
        self.gained = {} if self._is_fresh else {slot: before.get(slot, seq) for slot in mine}
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        for call in self.on_change:
            call()


async def _unsubscribed(subscription: Any) -> None:
    with contextlib.suppress(NatsError):
        await subscription.unsubscribe()


async def live_nodes(client: BrokerConnection) -> tuple[str, ...]:
    """The nodes that run on the journal: empty, one ``UNNAMED``, or those that share it."""
    try:
        answer = await client.request(NODES, b"", timeout=PROBE_S)
    except (NatsError, TimeoutError):
        return ()
    return tuple(map(str, orjson.loads(answer.data)))


async def run_alone(client: BrokerConnection) -> None:
    """Be the only node of the journal at an operator's broker: any further one is refused from now on.

    Raises:
        DataDirBusy: If a node runs on the journal.
    """
    if running := await live_nodes(client):
        names = ", ".join(running) if running != (UNNAMED,) else "one without a name"
        raise DataDirBusy(
            f"this journal has other nodes: {names}", hint="give every node a --node of its own, those that run, too"
        )

    async def answer(message: Msg) -> None:
        await message.respond(orjson.dumps([UNNAMED]))

    await client.subscribe(NODES, cb=answer)

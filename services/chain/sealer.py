"""Seals the messages of JOURNAL: every 1,000 messages, or 10 s after the first one that is not sealed.

The live feed passes each message on after it was folded, so sealing does not read the stream a second time; after a start it
reads what is not sealed yet.

Invariant: a checkpoint is signed only over a tree that continues the last one of the journal and of the node's own anchor.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import structlog

from ...schemas.chain.checkpoint import Checkpoint, public_key, signed, verified
from ...schemas.chain.events import SEALED_AT_MOST, ChainSealed
from ...schemas.chain.tree import GAP, Leaves, Tree
from ...schemas.core.errors import CrewJournalError
from ...schemas.core.ids import SYSTEM_WORKSPACE
from ...schemas.core.subjects import Family
from ...schemas.entries.events import JournalRestored, LossAccepted
from ...schemas.entries.tables import ENTRIES
from ..node import Node
from ..parts import Part, end_task
from .anchors import AnchorPlace, write_all

RETRY_S: Final = 5.0
"""Seconds until sealing is tried again, for example while the broker is away."""
SEALED_NOW_S: Final = 10.0
"""Seconds to wait for a seal that was asked for."""
_LOOK_S: Final = 0.02
OWNER_LOOK_S: Final = 1.0
"""Seconds between checks whether this node is to seal; of several nodes, one does."""
ARRIVED_AT_MOST: Final = 4_000
"""Messages of the feed that wait for sealing; older ones are dropped and read from the stream."""
_SEALS: Final = f"{Family.CONTROL.value}.{SYSTEM_WORKSPACE}.{ChainSealed.ENTRY_TYPE}"
_LAST: Final = f"""SELECT payload FROM {ENTRIES} WHERE workspace_id = '{SYSTEM_WORKSPACE}' AND control AND entry_type = ?
    ORDER BY seq DESC LIMIT 1"""
_RESUMED: Final = f"""SELECT seq FROM {ENTRIES} WHERE workspace_id = '{SYSTEM_WORKSPACE}' AND control AND seq > ?
    AND entry_type IN ('{JournalRestored.ENTRY_TYPE}', '{LossAccepted.ENTRY_TYPE}') LIMIT 1"""
_log = structlog.get_logger(__name__)


class SealedMessage(Protocol):
    """A message of the stream."""

    seq: int
    subject: str
    headers: Any
    data: bytes


StreamReader = Callable[[int, int], AsyncIterator[Sequence[SealedMessage]]]
"""Reads the messages between two sequences, both included."""


class Sealer(Part):
    """Seals the journal of a node.

    Args:
        node: What use-cases share.
        read: Reads the stream.
        head: The last sequence of the stream.
        key: The signing key.
        anchors: Places outside the stream.
    """

    def __init__(
        self,
        node: Node,
        read: StreamReader,
        head: Callable[[], Any],
        key: bytes,
        anchors: Sequence[AnchorPlace],
    ) -> None:
        self._node = node
        self._read = read
        self._head = head
        self._key = key
        self._anchors = tuple(anchors)
        self._seal_s = node.settings.seal_s
        self._tree = Tree()
        self._leaves = Leaves()
        self._pending: list[bytes] = []
        self._arrived: deque[SealedMessage] = deque(maxlen=ARRIVED_AT_MOST)
        self._has_work = False  # whether a pending leaf is of a message that is not itself a seal
        self._due: float | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._ready = False
        self._problem: str | None = None
        self._failed_anchors: dict[str, str] = {}

    @property
    def public_key(self) -> bytes:
        """The key with which checkpoints are checked, 32 bytes."""
        return public_key(self._key)

    @property
    def anchors(self) -> tuple[AnchorPlace, ...]:
        """The places outside the stream."""
        return self._anchors

    async def head(self) -> int:
        """The last sequence of the stream."""
        return int(await self._head())

    async def seal_now(self) -> int:
        """Seal what is not sealed yet, if this node seals; returns the last sequence that the file of a log holds.

        It is the last sealed one, or that of the journal if sealing does not come to it within SEALED_NOW_S.
        """
        head, last = await self.head(), 0
        await self._node.shows(head)
        async for messages in self._read(self._tree.size + 1, head):
            last = max((message.seq for message in messages if message.subject != _SEALS), default=last)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SEALED_NOW_S if self._task is not None else 0):
                while self._tree.size < last:
                    self._due = time.monotonic()
                    self._wake.set()
                    await asyncio.sleep(_LOOK_S)
        await self._node.shows(await self.head())  # the seals themselves
        return self._tree.size if self._tree.size >= last else head

    # as a part of the node

    async def start(self) -> None:
        """Begin to seal in the background."""
        if self._seal_s:
            self._task = asyncio.create_task(self._run(), name="sealer")

    async def stop(self) -> None:
        """End, without a last seal: the next start goes on."""
        await end_task(self._task)

    def figures(self) -> dict[str, Any]:
        """Its section of status."""
        return {
            "sealed_to": self._tree.size,
            "pending": len(self._pending) + len(self._arrived),
            "anchors": len(self._anchors),
            "anchors_failed": self._failed_anchors,
            "problem": self._problem,
        }

    # the work

    def take(self, messages: Iterable[SealedMessage]) -> None:
        """Note messages that the feed has folded; what is missing among them is read from the stream when sealing is due."""
        if self._task is None:
            return
        for message in messages:
            self._arrived.append(message)
            if self._due is None and message.subject != _SEALS:
                self._due = time.monotonic() + self._seal_s
                self._wake.set()
        if len(self._arrived) >= SEALED_AT_MOST:
            self._wake.set()

    async def _run(self) -> None:
        while True:
            if not self._node.ownership.hold(SYSTEM_WORKSPACE):
                self._ready, self._due = False, None
                await asyncio.sleep(OWNER_LOOK_S)
                continue
            try:
                if not self._ready:
                    await self._resume()
                    self._ready = True
                await self._wait_until_due()
                await self._seal_arrived()
                self._problem = None
            except CrewJournalError as error:
                self._problem, self._ready = error.message, False
                _log.warning("sealing_waits", error=type(error).__name__, reason=error.message)
                await asyncio.sleep(RETRY_S)

    async def _wait_until_due(self) -> None:
        while len(self._arrived) < SEALED_AT_MOST and (waits := self._seconds_left()) != 0:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(waits):
                    await self._wake.wait()

    def _seconds_left(self) -> float | None:
        return None if self._due is None else max(0.0, self._due - time.monotonic())

    async def _seal_arrived(self) -> None:
        self._due = None
        while self._arrived:
            await self._take_in(self._arrived.popleft())
        if self._has_work:
            await self._seal()

    async def _resume(self) -> None:
        """Continue after the last seal of the journal with what is not sealed yet."""
        head = await self.head()
        await self._node.shows(head)
        last = await asyncio.to_thread(self._last_seal)
        self._tree = last.tree() if last is not None else Tree()
        self._leaves = Leaves(salted=last is not None and last.salted)
        self._pending, self._has_work = [], False
        await asyncio.to_thread(self._refuse_fork, 0 if last is None else last.first_seq - 1)
        await self._read_to(head)
        if self._has_work:
            self._due = time.monotonic() + self._seal_s

    def _last_seal(self) -> ChainSealed | None:
        rows = self._node.views.rows(_LAST, [ChainSealed.ENTRY_TYPE])
        return ChainSealed.model_validate_json(rows[0][0]) if rows else None

    def _refuse_fork(self, sealed_before: int) -> None:
        """Do not sign a second tree beside the one of the node's own anchor.

        Args:
            sealed_before: Last sequence of the seal before the last one: what it covers is in the anchor.

        Raises:
            CrewJournalError: If the anchor knows more messages than the journal has sealed, and neither a restored
                backup nor an accepted loss explains it.
        """
        notes = self._anchors[0].read().notes if self._anchors else ()
        if not notes:
            return
        try:
            anchored = verified(notes[-1], self.public_key)
        except ValueError:  # the check reports it
            return
        if anchored.size <= self._tree.size:
            return
        if not self._node.views.rows(_RESUMED, [sealed_before]):
            raise CrewJournalError(
                f"{self._anchors[0].name} was written when {anchored.size} messages were sealed; the journal has "
                f"{self._tree.size}: nothing is signed",
                hint="crew-journal verify --chain shows what is missing",
            )

    @property
    def _end(self) -> int:
        """Last sequence that has a leaf."""
        return self._tree.size + len(self._pending)

    async def _read_to(self, last_seq: int) -> None:
        """Take in what the feed did not pass on; sequences without a message get the leaf ``GAP``."""
        if self._end < last_seq:
            async for messages in self._read(self._end + 1, last_seq):
                for message in messages:
                    await self._fill_gap(message.seq - 1)
                    await self._add(message)
            await self._fill_gap(last_seq)

    async def _take_in(self, message: SealedMessage) -> None:
        await self._read_to(message.seq - 1)
        if message.seq > self._end:
            await self._add(message)

    async def _fill_gap(self, last_seq: int) -> None:
        while self._end < last_seq:
            await self._append(GAP)

    async def _add(self, message: SealedMessage) -> None:
        self._has_work = self._has_work or message.subject != _SEALS
        await self._append(self._leaves.leaf(message.subject, message.headers, message.data))

    async def _append(self, leaf: bytes) -> None:
        self._pending.append(leaf)
        if len(self._pending) >= SEALED_AT_MOST:
            await self._seal()

    async def _seal(self) -> None:
        """Publish a seal over the pending leaves."""
        leaves = self._pending
        tree = Tree(self._tree.size, self._tree.peaks)
        tree.extend(leaves)
        note = signed(Checkpoint(tree.size, tree.root()), self._key)
        payload = ChainSealed(
            first_seq=self._tree.size + 1,
            last_seq=tree.size,
            leaves=base64.b64encode(b"".join(leaves)).decode(),
            peaks=tuple(peak.hex() for peak in tree.peaks),
            salted=self._leaves.salted,
            checkpoint=note,
        )
        await self._node.decide(None, payload, f"{tree.size:,} messages sealed", workspace_id=SYSTEM_WORKSPACE)
        self._tree, self._pending, self._has_work = tree, [], False
        self._failed_anchors = await asyncio.to_thread(write_all, self._anchors, note)

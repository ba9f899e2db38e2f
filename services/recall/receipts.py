"""The operations used and receipt: what a recall showed to whom, and what of it reached a prompt.

Invariants: a receipt is read from the view, so every node knows it, also after a restart; it counts once, because the
report of its use has an id derived from it; it is shown to, and used by, its asker and operators only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import structlog

from ...schemas.core.errors import (
    BrokerError,
    BrokerUnavailable,
    CrewJournalError,
    EntryConflict,
    InvalidQuery,
    NotFound,
)
from ...schemas.core.ids import derived_id, is_id, message_id, uuid7_hex
from ...schemas.core.ports import ViewReader
from ...schemas.core.principal import Principal
from ...schemas.core.timestamps import format_ms
from ...schemas.lineage.events import MemoryGiven
from ...schemas.palace.tables import DRAWERS
from ...schemas.recall import operations as ops
from ...schemas.recall.events import AskedRecall, MemoryReferenced, MemorySearched, ReferencedEntry, SearchedText
from ...schemas.recall.tables import RECEIPTS, ReceiptRow
from ..desk import RUN, Caller
from ..journal.intake.append import Recorder
from ..node import Answers, Node
from ..parts import end_task
from .recall import AnsweredRecall

# Records recalls as their receipts: one ``memory.searched`` each, published in the background.


PREFIX: Final = "r_"
LINGER_S: Final = 1.0
"""Seconds that receipts are gathered before they are published, unless one is asked for: one commit instead of many.

At 100 recalls a second, a receipt costs 1.8 ms of CPU if they are gathered for 0.25 s, 0.9 ms if for 1 s.
"""
QUEUE: Final = 2_000
"""Receipts that wait to be published, 2 to 10 MB; beyond it, recalls get none."""
GROUP: Final = 64
"""Receipts published at once: they share one fsync, and take about 10 ms of the event loop."""
MOST_HITS: Final = 100
"""Hits that ``memory.searched`` may name."""
RETRY_S: Final = 1.0
"""Seconds until receipts are published again that the broker did not ack."""
STOP_TIMEOUT_S: Final = 5.0
"""Seconds that the last receipts may take while the node stops."""

DRAWER: Final = "drawer"
DOCUMENT: Final = "document"
"""Kind of texts that come from document writes."""
OF_THE_JOURNAL: Final = frozenset((None, "entry", "rule"))
"""Kinds of hits that are entries of the journal."""

_log = structlog.get_logger(__name__)


ReceiptPayload = MemorySearched | MemoryGiven


def names_documents(payload: ReceiptPayload) -> bool:
    """Whether a receipt names documents, whose writes are to be added to it."""
    if isinstance(payload, MemoryGiven):
        return any(text.kind == DOCUMENT for text in payload.texts)
    return bool(payload.chunks) or any(text.kind == DOCUMENT for text in payload.texts)


@dataclass(frozen=True, slots=True)
class ReceiptFigures:
    """What ``status`` shows.

    Attributes:
        pending: Receipts not yet published.
        published: Receipts published since start.
        refused: Recalls since start that got no receipt.
        error: Why the last receipts were not published, None if they were.
    """

    pending: int
    published: int
    refused: int
    error: str | None


@dataclass(frozen=True, slots=True)
class _Receipt:
    entry_id: str
    workspace_id: str
    crew_id: str | None
    agent_id: str | None
    run: str | None
    payload: ReceiptPayload


class ReceiptLog:
    """Records recalls; used on the event loop.

    Args:
        journal: Records them.
        connected: Whether the broker can be reached.
        complete: Adds the document writes to a receipt in a workspace; blocking.
    """

    def __init__(
        self,
        journal: Recorder,
        connected: Callable[[], bool],
        complete: Callable[[str, ReceiptPayload], ReceiptPayload] | None = None,
    ) -> None:
        self._journal = journal
        self._connected = connected
        self._complete = complete
        self._waiting: dict[str, _Receipt] = {}
        self._due = asyncio.Event()
        self._hurry = asyncio.Event()
        self._flushing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._published = 0
        self._refused = 0
        self._error: str | None = None

    async def start(self) -> None:
        """Publish in the background."""
        self._task = asyncio.create_task(self._run(), name="receipts")

    async def stop(self) -> None:
        """Publish the pending receipts and end; those that the broker does not take now are lost."""
        task, self._task = self._task, None
        if task is not None:
            await end_task(task)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self.flush()
        if self._waiting:
            _log.warning("receipts.lost_at_shutdown", receipts=len(self._waiting), error=self._error)

    def figures(self) -> ReceiptFigures:
        """Its counts."""
        return ReceiptFigures(len(self._waiting), self._published, self._refused, self._error)

    def record(self, answered: AnsweredRecall, rendered: Sequence[str] | None) -> str | None:
        """Record an answered recall.

        Args:
            answered: The recall.
            rendered: The hits whose text reached a prompt; None if nothing was rendered.

        Returns:
            The receipt; None if it cannot be stored now.
        """
        return self.keep(answered.principal, answered.workspace_id, _payload(answered, rendered))

    def keep(self, asker: Principal, workspace_id: str, payload: ReceiptPayload, run: str | None = None) -> str | None:
        """Record a search, or a text for a prompt.

        Args:
            asker: Who asked.
            workspace_id: Where.
            payload: What was found or given.
            run: The run that asked, unless the request's header names one.

        Returns:
            The receipt; None if it cannot be stored now.
        """
        if self._error is not None or len(self._waiting) >= QUEUE or not self._connected():
            self._refused += 1
            return None
        receipt = PREFIX + uuid7_hex()
        run = RUN.get() or (run if run is not None and is_id(run) else None)
        self._waiting[receipt] = _Receipt(receipt, workspace_id, asker.crew_id, asker.agent_id, run, payload)
        self._due.set()
        return receipt

    def hurry_all(self) -> None:
        """Publish the pending receipts at once."""
        if self._waiting:
            self._hurry.set()

    def hurry(self, receipt: str) -> bool:
        """Publish at once if this receipt is not acked yet; returns whether it is one of those."""
        if receipt in self._waiting:
            self._hurry.set()
            return True
        return False

    async def flush(self) -> bool:
        """Publish the pending receipts; returns whether all are settled."""
        async with self._flushing:
            while self._waiting:
                group = list(islice(self._waiting.values(), GROUP))
                acked = await asyncio.gather(*map(self._publish, group))
                if not all(acked):
                    return False
                self._error = None
        return True

    async def _publish(self, receipt: _Receipt) -> bool:
        """Publish one; returns whether it need not be tried again."""
        try:
            payload = receipt.payload
            if self._complete is not None and names_documents(payload):
                payload = await asyncio.to_thread(self._complete, receipt.workspace_id, payload)
            await self._journal.record(
                receipt.workspace_id,
                payload,
                summary=_summary(payload),
                entry_id=receipt.entry_id,
                crew_id=receipt.crew_id,
                agent_id=receipt.agent_id,
                trace_id=receipt.run,
            )
            self._published += 1
        except (BrokerUnavailable, BrokerError) as error:
            self._error = error.message
            return False
        except CrewJournalError as error:
            _log.warning("receipts.not_recorded", receipt=receipt.entry_id, error=error.message)
        del self._waiting[receipt.entry_id]
        return True

    async def _run(self) -> None:
        while True:
            await self._due.wait()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), LINGER_S)
            self._due.clear()
            self._hurry.clear()
            try:
                settled = await self.flush()
            except Exception:  # pending receipts are kept, and the next round tries again
                _log.exception("receipts.flush_failed")
                settled = False
            if not settled:
                self._due.set()
                await asyncio.sleep(RETRY_S)


def _summary(searched: ReceiptPayload) -> str:
    if isinstance(searched, MemoryGiven):
        return f"Gave {len(searched.texts)} text{'s' * (len(searched.texts) != 1)} for a prompt ({searched.prompt})"
    passages = f"{len(searched.chunks)} passages of documents"
    if not searched.hit_ids and searched.chunks:
        return f"Found {passages}"
    recalled = f"Recalled {len(searched.hit_ids) + len(searched.texts)} memories"
    return f"{recalled} and {passages}" if searched.chunks else recalled


def _payload(answered: AnsweredRecall, rendered: Sequence[str] | None) -> MemorySearched:
    """The recorded entry: its payload names the searched agent and crew, the entry itself the asker.

    The agent and crew of an entry may read it, and a query of an OWNER about an agent is not for that agent.
    """
    asker, scope, response, mean = answered.principal, answered.scope, answered.response, answered.mean_cosine
    ranked = list(enumerate(response.hits[:MOST_HITS]))
    hits = [hit for _, hit in ranked if hit.kind in OF_THE_JOURNAL]
    reached = set(rendered or ())
    texts = [
        SearchedText(
            kind=hit.kind or "",
            id=id_of_hit(hit),
            rank=rank,
            confidence=hit.confidence,
            entry_id=None if hit.kind == "document" else hit.entry_id,
            rendered=hit.kind == "document" and hit.entry_id in reached,
        )
        for rank, hit in ranked
        if hit.kind not in OF_THE_JOURNAL
    ]
    documents = {text.id for text in texts if text.kind == "document"}
    return MemorySearched(
        query=answered.request.query,
        scope=scope.kind.value,
        crew_id=scope.crew_id or asker.crew_id,
        agent_id=scope.agent_id or asker.agent_id,
        recipe=response.recipe,
        model=response.model,
        hit_ids=tuple(hit.entry_id for hit in hits),
        mean_cosine=None if mean is None else max(-1.0, min(1.0, mean)),  # a cosine in float32 may lie beyond 1
        scores=tuple(hit.score for hit in hits),
        confidences=tuple(hit.confidence for hit in hits),
        mode=answered.request.mode,
        floor=answered.floor,
        rendered=None if rendered is None else tuple(hit for hit in rendered if hit not in documents)[:MOST_HITS],
        asked_by=asker.token_id,
        texts=tuple(texts),
        view_seq=response.view_seq,
        asked=_asked(answered),
    )


def _asked(answered: AnsweredRecall) -> AskedRecall:
    request = answered.request
    return AskedRecall(
        role=answered.principal.role,
        k=request.k,
        kinds=request.kinds,
        scope=request.scope,
        asked_at=request.asked_at,
        walk_depth=request.walk_depth,
        collect=request.collect,
        max_tokens=request.max_tokens,
        crew_only=request.crew_only,
    )


def id_of_hit(hit: ops.Hit) -> str:
    """The id of a hit within its kind: of the fact or item, else its ``entry_id``.

    A drawer's own id follows from its text, so a receipt that keeps it would confirm a guess of the text once it is erased.
    """
    if hit.text is not None:
        return hit.text.item
    return hit.fact.fact_id if hit.fact else hit.entry_id


def drawers_filed_by(views: ViewReader, workspace_id: str, entry_ids: Collection[str]) -> dict[str, str]:
    """Entry → the drawer that it filed, by whose id the drawer is opened; blocking."""
    return dict(views.rows(_FILED_BY, [workspace_id, list(entry_ids)])) if entry_ids else {}


_FILED_BY: Final = f"""SELECT entry_id, drawer_id FROM {DRAWERS}
    WHERE workspace_id = ? AND entry_id IN (SELECT unnest(?::VARCHAR[]))"""
ARRIVAL_S: Final = 5.0
"""Seconds to wait for a receipt that is still on its way to the view; usually 0.1."""
YOUNG_S: Final = 30.0
"""Seconds since its making within which a receipt may still be on its way, clocks of other nodes included."""
_HEX_MS: Final = 12
"""Hex digits of the milliseconds in a UUIDv7."""
_SELECT: Final = (
    f"SELECT {RECEIPTS.names} FROM {RECEIPTS} WHERE receipt = ? AND (?::VARCHAR IS NULL OR workspace_id = ?)"
)


class Receipts:
    """Shows receipts, and records their use."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views = node.views
        self._log = node.use(ReceiptLog)

    async def used(self, caller: Caller, request: ops.UsedRequest) -> ops.UsedAnswer:
        """Count the hits of a receipt, or some of them, as having reached a prompt; once.

        Raises:
            NotFound: If there is no such receipt, or none for this token.
            InvalidQuery: If it does not hold one of the entries.
            BrokerUnavailable: If it, or its use, cannot be stored now.
        """
        row = await self._find(caller.principal, request.receipt)
        if row.used is not None:
            return ops.UsedAnswer(receipt=row.receipt, counted=0, already=True)
        hits = json.loads(row.hits)
        held = {str(hit["entry_id"]) for hit in hits}
        documents = {str(hit["entry_id"]) for hit in hits if hit.get("kind") == "document"}
        chosen = held if request.entry_ids is None else set(request.entry_ids)
        if foreign := sorted(chosen - held):
            raise InvalidQuery(
                f"the receipt does not hold {foreign[0][:64]}", hint="name hits of that recall", field="entry_ids"
            )
        already = False
        if chosen:
            entries = tuple(ReferencedEntry(entry_id=entry_id, count=1) for entry_id in sorted(chosen - documents))
            chunks = tuple(sorted(chosen & documents))
            try:
                decided = await self._node.decide(
                    None,
                    MemoryReferenced(entries=entries, receipt=row.receipt, chunks=chunks),
                    f"{len(chosen)} {'memory' if len(chosen) == 1 else 'memories'} reached a prompt",
                    workspace_id=row.workspace_id,
                    entry_id=derived_id("used", 1, message_id(row.workspace_id, row.receipt)),
                )
                already = decided.duplicate
            except EntryConflict:  # other hits of it were reported first
                already = True
        return ops.UsedAnswer(receipt=row.receipt, counted=0 if already else len(chosen), already=already)

    async def show(self, caller: Caller, request: ops.ReceiptRequest) -> ops.ReceiptAnswer:
        """What a recall showed to whom; raises as ``used``."""
        row = await self._find(caller.principal, request.receipt)
        used = None if row.used is None else set(json.loads(row.used))
        hits = json.loads(row.hits)
        filed = [str(hit["id"]) for hit in hits if hit.get("kind") == DRAWER]
        drawers = await asyncio.to_thread(drawers_filed_by, self._views, row.workspace_id, filed)
        for hit in hits:
            if hit.get("kind") == DRAWER:
                hit["id"] = drawers.get(hit["id"], hit["id"])
        return ops.ReceiptAnswer(
            receipt=row.receipt,
            workspace_id=row.workspace_id,
            ts=format_ms(row.ts_ms),
            asked_by=row.asked_by,
            agent_id=row.agent_id,
            crew_id=row.crew_id,
            scope=row.scope,
            of_agent_id=row.of_agent_id,
            of_crew_id=row.of_crew_id,
            query=row.query,
            recipe=row.recipe,
            model=row.model,
            mode=row.mode,
            floor=row.floor,
            hits=[ops.ShownHit(**hit, used=None if used is None else hit["entry_id"] in used) for hit in hits],
            rendered=row.rendered,
            used_at=None if row.used_ms is None else format_ms(row.used_ms),
        )

    async def _find(self, principal: Principal, receipt: str) -> ReceiptRow:
        row = await asyncio.to_thread(self._read, principal, receipt)
        if row is None and _is_young(receipt):
            row = await self._arrival(principal, receipt)
        if row is not None and _is_for(row, principal):
            return row
        raise NotFound(
            f"no receipt {receipt[:64]}",
            hint="a receipt is for the agent that recalled, and for OWNER and ADMIN: recall again with this token",
        )

    async def _arrival(self, principal: Principal, receipt: str) -> ReceiptRow | None:
        """The row once it is folded; None if that takes too long.

        Raises:
            BrokerUnavailable: If this node cannot publish it.
        """
        committed = asyncio.Event()
        unsubscribe = self._views.subscribe(lambda _batch: committed.set())
        self._log.hurry(receipt)
        try:
            async with asyncio.timeout(ARRIVAL_S):
                while (row := await asyncio.to_thread(self._read, principal, receipt)) is None:
                    await committed.wait()
                    committed.clear()
        except TimeoutError:
            if self._log.hurry(receipt):
                raise BrokerUnavailable(
                    "the receipt is not stored yet", hint="try again; see crew-journal status"
                ) from None
            return None
        finally:
            unsubscribe()
        return row

    def _read(self, principal: Principal, receipt: str) -> ReceiptRow | None:
        workspace_id = principal.workspace_id
        rows = self._views.rows(_SELECT, [receipt, workspace_id, workspace_id])
        return ReceiptRow(*rows[0]) if rows else None


def _is_young(receipt: str) -> bool:
    try:
        made_ms = int(receipt.removeprefix(PREFIX)[:_HEX_MS], 16)
    except ValueError:
        return False
    return receipt.startswith(PREFIX) and abs(time.time() - made_ms / 1_000) < YOUNG_S


def _is_for(row: ReceiptRow, principal: Principal) -> bool:
    return principal.role.administers or (row.agent_id is not None and row.agent_id == principal.agent_id)


ANSWERS: Final[Answers] = ((ops.USED, Receipts.used), (ops.RECEIPT, Receipts.show))

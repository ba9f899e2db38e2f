"""Moves a workspace with its proofs: reads it as lines of a log, and takes over the messages of one.

Invariant: a message that is taken over keeps its id, content and publisher, and names in a header the journal and the
sequence that it is from. The checks of a file are those of ``schemas/chain/log_file``, before its first message is sent.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

import orjson

from ...schemas.chain.checkpoint import public_key_of, verified
from ...schemas.chain.events import ChainSealed, JournalImported
from ...schemas.chain.log_file import LoggedMessage, head_line, leaves_line, message_line
from ...schemas.chain.operations import (
    EXPORT_LOG,
    IMPORT_LOG,
    ExportLogAnswer,
    ExportLogRequest,
    ImportLogAnswer,
    ImportLogRequest,
    LoggedMessageSent,
)
from ...schemas.chain.tree import GAP, Leaves, header_block
from ...schemas.core import headers as h
from ...schemas.core.envelope import DocumentWritten, EntryRecorded, Event
from ...schemas.core.errors import EntryConflict, FieldProblem, FoldError, InvalidRequest
from ...schemas.core.ids import SYSTEM_WORKSPACE
from ...schemas.core.sequence_set import Range, parse_ranges
from ...schemas.decode import decode
from ...schemas.documents.tables import VERSIONS
from ...schemas.entries.tables import ENTRIES
from ...schemas.lineage.events import MemoryGiven
from ...schemas.recall.events import MemorySearched
from ..desk import Caller
from ..erasure.use_cases import Erasures
from ..journal.broker.connection import encode_headers
from ..journal.publishing import EncodedMessage
from ..node import Answers, Node
from ..operate.letters import workspace_of
from .sealer import Sealer
from .use_cases import ChainProofs

PAGE_SEQUENCES: Final = 1_000
"""Sequences of one answer, at most."""
PAGE_BYTES: Final = 2 * 1024 * 1024
"""Bytes of messages from which an answer ends."""
_SEALS: Final = f"""SELECT payload FROM {ENTRIES} WHERE workspace_id = '{SYSTEM_WORKSPACE}' AND control
    AND entry_type = '{ChainSealed.ENTRY_TYPE}' AND CAST(payload->>'last_seq' AS BIGINT) >= ?
    AND CAST(payload->>'first_seq' AS BIGINT) <= ? ORDER BY seq"""
_SEALED_TO: Final = f"""SELECT max(CAST(payload->>'last_seq' AS BIGINT)) FROM {ENTRIES} WHERE control
    AND workspace_id = '{SYSTEM_WORKSPACE}' AND entry_type = '{ChainSealed.ENTRY_TYPE}'"""
_WRITTEN: Final = f"SELECT write_id FROM {VERSIONS} WHERE workspace_id = ? AND list_contains(?, write_id)"
_OF_DECISIONS: Final = ("drawer.", "fact.", "lesson.", "proposal.", "retraction.", "rule.", "tunnel.")
_DECISIONS: Final = frozenset(
    (
        "agent.registered", "crew.registered", "kg.entity_named", "memory.config_updated", "memory.consolidated",
        "memory.given", "memory.priority_changed", "memory.referenced", "memory.searched", "statement.corrected",
        "workspace.configured",
    )
)  # fmt: skip
_OF_ITS_JOURNAL: Final = frozenset(("drawer.centroid_computed", "drawer.ingest_asked"))
"""Decisions with those prefixes that are derived, or name sequences of their journal."""
_OF_VIEWS: Final = frozenset((MemorySearched.ENTRY_TYPE, MemoryGiven.ENTRY_TYPE))
"""Receipts, which name the sequence of the views that answered; it means nothing in another journal."""


class PortableLog:
    """The use-cases.

    Args:
        node: What use-cases share.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        proofs = node.use(ChainProofs)
        self._sealer: Sealer = proofs.sealer
        self._read = proofs.read
        self._one_at_a_time = asyncio.Lock()

    async def export(self, caller: Caller, request: ExportLogRequest) -> ExportLogAnswer:
        """The next lines of a workspace's log."""
        last_seq = request.to_seq or await self._sealer.seal_now()
        size = await asyncio.to_thread(self._sealed_to)
        first_seq, lines = request.from_seq, list[dict[str, Any]]()
        if first_seq == 1:
            lines.append(head_line(caller.workspace_id, self._sealer.public_key, min(size, last_seq), last_seq))
        end = min(last_seq, first_seq + PAGE_SEQUENCES - 1)
        seals = await asyncio.to_thread(self._seals, first_seq, end)
        writing = _Lines(caller.workspace_id, first_seq, seals, lines)
        async with aclosing(self._read(first_seq, end)) as stream:  # type: ignore[type-var]  # it is a generator
            async for messages in stream:
                for message in messages:
                    writing.skip_to(message.seq)
                    writing.take(message)
                if writing.bytes >= PAGE_BYTES:
                    break
            else:
                writing.skip_to(end + 1)
        writing.end()
        next_seq = writing.next_seq if writing.next_seq <= last_seq else None
        return ExportLogAnswer(lines=tuple(lines), to_seq=last_seq, next_seq=next_seq)

    def _sealed_to(self) -> int:
        return int(self._node.views.rows(_SEALED_TO, [])[0][0] or 0)

    def _seals(self, first_seq: int, last_seq: int) -> list[ChainSealed]:
        rows = self._node.views.rows(_SEALS, [first_seq, last_seq])
        return [ChainSealed.model_validate_json(payload) for (payload,) in rows]

    async def take_over(self, caller: Caller, request: ImportLogRequest) -> ImportLogAnswer:
        """Store messages of another journal.

        Raises:
            InvalidRequest: If the checkpoint is not signed by the key, or a message is not valid; names its sequence.
            EntryConflict: If an id belongs to other content here; nothing of the request is stored.
        """
        try:
            public = public_key_of(request.public_key)
            size = verified(request.checkpoint, public).size
            erased = parse_ranges(request.erased)
        except (ValueError, binascii.Error) as error:
            raise InvalidRequest((FieldProblem("checkpoint", str(error), "import a file of `export`"),)) from None
        origin = request.public_key.split("+")[1]
        async with self._one_at_a_time:
            left_out, fresh, repeated = await self._sorted(caller.workspace_id, request.messages)
            outgoing = [
                EncodedMessage(sent.subject, _head(block, origin, sent.seq), body) for sent, block, body in fresh
            ]
            stored = await self._node.writer.post_atomic(outgoing) if outgoing else []
            seq = stored[-1].seq if stored else None
            erasure_id = None
            if request.last:
                erasure_id = await self._erase(caller, origin, erased) if erased else None
                imported = JournalImported(
                    public_key=request.public_key,
                    checkpoint=request.checkpoint,
                    size=size,
                    messages=request.imported + len(stored),
                )
                summary = f"{imported.messages:,} messages of another journal were imported"
                seq = (await self._node.decide(caller, imported, summary)).seq
            if seq is not None:
                await self._node.shows(seq)
        return ImportLogAnswer(
            imported=len(stored), repeated=repeated, left_out=dict(left_out), seq=seq, erasure_id=erasure_id
        )

    async def _sorted(
        self, workspace_id: str, messages: Sequence[LoggedMessageSent]
    ) -> tuple[Counter[str], list[tuple[LoggedMessageSent, bytes, bytes]], int]:
        """What is left out, what is to be stored (message, headers, body), and how many messages are there already."""
        left_out, wanted = Counter[str](), list[tuple[LoggedMessageSent, Event, bytes, bytes]]()
        for sent in messages:
            try:
                block, body = (base64.b64decode(text, validate=True) for text in (sent.headers, sent.body))
                event = decode(sent.seq, sent.subject, _fields(block), body, 0)
                if workspace_of(sent.subject) != workspace_id:
                    raise FoldError(f"the message {sent.seq} is not of the workspace {workspace_id}")
            except (FoldError, binascii.Error) as error:
                fix = "import a file of `export`"
                raise InvalidRequest((FieldProblem(f"messages[{sent.seq}]", str(error), fix),)) from None
            if (kind := _left_out(event)) is not None:
                left_out[kind] += 1
                continue
            wanted.append((sent, event, block, _body(event, body)))
        known = self._node.journal.identities.find_all(
            [(workspace_id, event.entry.id) for _, event, _, _ in wanted if isinstance(event, EntryRecorded)]
        )
        writes = [event.write_id for _, event, _, _ in wanted if isinstance(event, DocumentWritten)]
        there = {row[0] for row in await asyncio.to_thread(self._node.views.rows, _WRITTEN, [workspace_id, writes])}
        fresh, entries = [], iter(known)
        for sent, event, block, body in wanted:
            if isinstance(event, EntryRecorded):
                if (identity := next(entries)) is not None:
                    if identity.content != event.content:
                        raise EntryConflict(
                            f"the id {event.entry.id} of the message {sent.seq} belongs to another entry here",
                            hint="import into a journal without this workspace",
                        )
                    continue
            elif isinstance(event, DocumentWritten) and event.write_id in there:
                continue
            fresh.append((sent, block, body))
        return left_out, fresh, len(wanted) - len(fresh)

    async def _erase(self, caller: Caller, origin: str, erased: Sequence[Range]) -> str | None:
        """Erase what an earlier import stored and the other journal has erased since."""
        names: set[str] = set()
        async for messages in self._read(1, await self._sealer.head()):
            for message in messages:
                key, _, seq = (message.headers or {}).get(h.ORIGIN, "").partition("/")
                if key != origin or workspace_of(message.subject) != caller.workspace_id:
                    continue
                if any(first <= int(seq) <= last for first, last in erased):
                    event = decode(message.seq, message.subject, message.headers, message.data, 0)
                    if isinstance(event, EntryRecorded):
                        names.add(event.entry.id)
                    elif isinstance(event, DocumentWritten):
                        names.add(event.write_id)
            await asyncio.sleep(0)
        if not names:
            return None
        answer = await self._node.use(Erasures).erase(
            caller.workspace_id, "erased in the journal that they were imported from", names, caller=caller
        )
        return answer.erasure_id


class _Lines:
    """Writes the lines of consecutive sequences."""

    def __init__(
        self, workspace_id: str, first_seq: int, seals: Sequence[ChainSealed], lines: list[dict[str, Any]]
    ) -> None:
        self.next_seq = first_seq
        self.bytes = 0
        self._workspace_id = workspace_id
        self._lines = lines
        self._sealed: dict[int, bytes] = {}
        self._checkpoints: dict[int, str] = {}
        for seal in seals:
            self._sealed.update(zip(range(seal.first_seq, seal.last_seq + 1), seal.sealed_leaves(), strict=True))
            self._checkpoints.setdefault(seal.last_seq, seal.checkpoint)
        self._leaves = Leaves(salted=True)
        self._run: list[bytes] = []

    def take(self, message: Any) -> None:
        """The message with the next sequence."""
        leaf = self._sealed.get(message.seq) or self._leaves.leaf(message.subject, message.headers, message.data)
        if workspace_of(message.subject) == self._workspace_id:
            self.end()
            logged = LoggedMessage(message.seq, message.subject, header_block(message.headers), bytes(message.data))
            self._lines.append(message_line(logged, leaf))
            self.bytes += len(logged.block) + len(logged.body)
            self._go_on()
        else:
            self._add(leaf)

    def skip_to(self, seq: int) -> None:
        """Write the leaves of the sequences before ``seq`` that have no message now."""
        while self.next_seq < seq:
            self._add(self._sealed.get(self.next_seq, GAP))

    def _add(self, leaf: bytes) -> None:
        self._run.append(leaf)
        if self.next_seq in self._checkpoints:
            self.next_seq += 1
            self.end()
            self._lines.append({"checkpoint": self._checkpoints[self.next_seq - 1]})
        else:
            self.next_seq += 1

    def _go_on(self) -> None:
        if (note := self._checkpoints.get(self.next_seq)) is not None:
            self._lines.append({"checkpoint": note})
        self.next_seq += 1

    def end(self) -> None:
        """Write the leaves that were collected."""
        if self._run:
            self._lines.append(leaves_line(self.next_seq - len(self._run), self._run))
            self._run = []


def _left_out(event: Event) -> str | None:
    """The kind of a message that an import leaves out, None for one that it stores."""
    if isinstance(event, DocumentWritten):
        return "models of people" if event.owner.startswith("u-") else None
    if not isinstance(event, EntryRecorded):
        return "derived"
    kind = event.entry.entry_type
    if not event.control or kind in _DECISIONS or (kind.startswith(_OF_DECISIONS) and kind not in _OF_ITS_JOURNAL):
        return None
    return kind


def _body(event: Event, body: bytes) -> bytes:
    """The body to store: that of a receipt without the sequence of views."""
    if not (isinstance(event, EntryRecorded) and event.control and event.entry.entry_type in _OF_VIEWS):
        return body
    record = orjson.loads(body)
    record["payload"].pop("view_seq", None)
    return orjson.dumps(record)


def _fields(block: bytes) -> dict[str, str]:
    lines = block.decode("ascii", "replace").split("\r\n")[1:]
    return {name: value.strip() for name, colon, value in (line.partition(":") for line in lines) if colon}


def _head(block: bytes, origin: str, seq: int) -> bytes:
    """The headers to store: the service's own without the salt, and where the message is from."""
    fields = {name: value for name, value in _fields(block).items() if name == h.MSG_ID or name.startswith("Crew-")}
    kept: Mapping[str, str] = {name: value for name, value in fields.items() if name not in (h.SALT, h.ORIGIN)}
    return encode_headers({**kept, h.ORIGIN: f"{origin}/{seq}"})


ANSWERS: Final[Answers] = ((EXPORT_LOG, PortableLog.export), (IMPORT_LOG, PortableLog.take_over))

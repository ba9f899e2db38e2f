"""Checks the journal against its seals and anchors, and proves that an entry is in it."""

from __future__ import annotations

import asyncio
import base64
from typing import Final

from ...schemas.chain.check import Anchor, ChainCheck, ChainReport
from ...schemas.chain.checkpoint import verification_key, verified
from ...schemas.chain.events import ChainSealed
from ...schemas.chain.operations import (
    PROVE_ENTRY,
    VERIFY_CHAIN,
    ChainBreakShown,
    ProveEntryAnswer,
    ProveEntryRequest,
    VerifyChainAnswer,
    VerifyChainRequest,
)
from ...schemas.chain.tree import inclusion_path, leaf_data, leaf_hash
from ...schemas.core.errors import NotFound, Unavailable, VerificationFailed
from ...schemas.core.ids import SYSTEM_WORKSPACE
from ...schemas.entries.tables import ENTRIES
from ..desk import Caller
from ..entries.rows import ARCHIVE_SOURCE
from ..node import Answers, Node
from .sealer import Sealer, StreamReader

_SEALS_TO: Final = f"""SELECT payload FROM {ENTRIES} WHERE workspace_id = '{SYSTEM_WORKSPACE}' AND control AND entry_type = ?
    ORDER BY seq"""
_PLACE: Final = f"SELECT seq FROM {ARCHIVE_SOURCE} WHERE workspace_id = ? AND id = ?"

_CHECK: Final = "crew-journal verify --chain"


class ChainProofs:
    """The use-cases of the transparency log.

    Args:
        node: What use-cases share.
        sealer: Seals the journal.
        read: Reads the stream.
    """

    def __init__(self, node: Node, sealer: Sealer, read: StreamReader) -> None:
        self._node = node
        self.sealer = sealer
        self.read = read

    async def check(self, caller: Caller, request: VerifyChainRequest) -> VerifyChainAnswer:
        """Read the whole stream and compare it with seals and anchors."""
        anchors = await asyncio.to_thread(self._anchors)
        public = self.sealer.public_key
        chain = ChainCheck(public, anchors)
        async for messages in self.read(1, await self.sealer.head()):
            for message in messages:
                chain.take(message.seq, message.subject, message.headers, message.data)
            await asyncio.sleep(0)
        return _shown(await asyncio.to_thread(chain.report), public)

    def _anchors(self) -> list[Anchor]:
        return [place.read() for place in self.sealer.anchors]

    async def prove(self, caller: Caller, request: ProveEntryRequest) -> ProveEntryAnswer:
        """The proof that an entry is in the journal.

        Raises:
            NotFound: If there is no such entry, or it is from before the log.
            VerificationFailed: If its message is missing, or is not the one that was sealed.
            Unavailable: If it is not sealed yet.
        """
        workspace_id = caller.workspace_id
        places = await asyncio.to_thread(self._node.views.rows, _PLACE, [workspace_id, request.entry_id])
        if not places:
            raise NotFound(f"the entry {request.entry_id} is unknown", field="entry_id")
        seq = int(places[0][0])
        return await self._proof(request.entry_id, seq)

    async def _proof(self, entry_id: str, seq: int) -> ProveEntryAnswer:
        read = [message async for messages in self.read(seq, seq) for message in messages]
        if not read:
            raise VerificationFailed(f"the message of {entry_id} at {seq} is missing", hint=_CHECK)
        data = leaf_data(read[0].subject, read[0].headers, read[0].data)
        if data is None:
            raise NotFound(f"the message of {entry_id} has no salt: it is from before the log", field="entry_id")
        seals = await asyncio.to_thread(self._seals)
        if all(seal.last_seq < seq for seal in seals):
            await self.sealer.seal_now()
            seals = await asyncio.to_thread(self._seals)
        if all(seal.last_seq < seq for seal in seals):
            raise Unavailable(f"the entry {entry_id} is not sealed yet", hint="ask again in 10 s")
        leaves = list[bytes]()
        for seal in seals:  # two nodes may have sealed the same sequences
            leaves += seal.sealed_leaves()[max(0, len(leaves) - seal.first_seq + 1) :]
        if leaves[seq - 1 : seq] != [leaf_hash(data)]:
            raise VerificationFailed(f"the message of {entry_id} at {seq} is not the one that was sealed", hint=_CHECK)
        path = await asyncio.to_thread(inclusion_path, leaves, seq - 1)
        note, public = max(seals, key=lambda seal: seal.last_seq).checkpoint, self.sealer.public_key
        return ProveEntryAnswer(
            entry_id=entry_id,
            seq=seq,
            index=seq - 1,
            size=verified(note, public).size,
            leaf_data=_text(data),
            path=tuple(map(_text, path)),
            checkpoint=note,
            public_key=verification_key(public),
        )

    def _seals(self) -> list[ChainSealed]:
        rows = self._node.views.rows(_SEALS_TO, [ChainSealed.ENTRY_TYPE])
        return [ChainSealed.model_validate_json(payload) for (payload,) in rows]


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _shown(report: ChainReport, public: bytes) -> VerifyChainAnswer:
    return VerifyChainAnswer(
        integrity=report.integrity,
        completeness=report.completeness,
        messages=report.messages,
        last_seq=report.last_seq,
        sealed_to=report.sealed_to,
        seals=report.seals,
        unsalted=report.unsalted,
        explained=report.explained,
        root=report.root.hex(),
        public_key=verification_key(public),
        anchors=report.anchors,
        restored=tuple(report.restored),
        breaks=tuple(ChainBreakShown(kind=found.kind, seq=found.seq, text=found.text) for found in report.breaks),
        counts=dict(sorted(report.counts.items())),
    )


ANSWERS: Final[Answers] = ((VERIFY_CHAIN, ChainProofs.check), (PROVE_ENTRY, ChainProofs.prove))

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
from ...schemas.chain.tree import inclusion_path, leaf_data
from ...schemas.core.errors import NotFound, Unavailable
from ...schemas.core.ids import SYSTEM_WORKSPACE
from ...schemas.entries.tables import ENTRIES
from ..desk import Caller
from ..node import Answers, Node
from .sealer import Sealer, StreamReader

_SEALS_TO: Final = f"""SELECT payload FROM {ENTRIES} WHERE workspace_id = '{SYSTEM_WORKSPACE}' AND control AND entry_type = ?
    ORDER BY seq"""
_PLACE: Final = f"SELECT seq FROM {ENTRIES} WHERE workspace_id = ? AND id = ?"


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
            Unavailable: If it is not sealed yet.
        """
        workspace_id = caller.workspace_id
        places = await asyncio.to_thread(self._node.views.rows, _PLACE, [workspace_id, request.entry_id])
        if not places:
            raise NotFound(f"the entry {request.entry_id} is unknown", field="entry_id")
        seq = int(places[0][0])
        return await self._proof(request.entry_id, seq)

    async def _proof(self, entry_id: str, seq: int) -> ProveEntryAnswer:
        data = None
        async for messages in self.read(seq, seq):
            for message in messages:
                data = leaf_data(message.subject, message.headers, message.data)
        if data is None:
            raise NotFound(f"the message of {entry_id} has no salt: it is from before the log", field="entry_id")
        seals = await asyncio.to_thread(self._seals)
        if not seals or seals[-1].last_seq < seq:
            await self.sealer.seal_now()
            seals = await asyncio.to_thread(self._seals)
        if not seals or seals[-1].last_seq < seq:
            raise Unavailable(f"the entry {entry_id} is not sealed yet", hint="ask again in 10 s")
        leaves = [leaf for seal in seals for leaf in seal.sealed_leaves()]
        path = await asyncio.to_thread(inclusion_path, leaves, seq - 1)
        note, public = seals[-1].checkpoint, self.sealer.public_key
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

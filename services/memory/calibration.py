"""The operation calibrate: proposes an evidence floor from a workspace's receipts."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import Final

from ...schemas.operations.workspaces import CALIBRATE, CalibrateAnswer, CalibrateRequest, FloorShown
from ...schemas.rules.evidence_floor import ReplayedHit, propose_floor
from ...schemas.views import RECEIPTS, RECEIPTS_PROJECTION
from ..desk import Caller
from ..node import Answers, Node
from ..query.unknown_names import refuse_unknown_workspace

_NEWEST: Final = f"SELECT hits, used, rendered FROM {RECEIPTS} WHERE workspace_id = ? ORDER BY seq DESC LIMIT ?"


class FloorCalibration:
    """Replays the receipts of a workspace."""

    def __init__(self, node: Node) -> None:
        self._views = node.views

    async def propose(self, caller: Caller, request: CalibrateRequest) -> CalibrateAnswer:
        """The floor that keeps the used hits."""
        view_seq = self._views.view_seq(RECEIPTS_PROJECTION)
        receipts, rendered = await asyncio.to_thread(self._replayed, caller.workspace_id, request.receipts)
        if not receipts:
            await refuse_unknown_workspace(self._views, caller.principal, caller.workspace_id)
        proposal = await asyncio.to_thread(propose_floor, receipts)
        return CalibrateAnswer(
            workspace_id=caller.workspace_id,
            floor=proposal.floor,
            receipts=len(receipts),
            used=sum(hit.used for hits in receipts for hit in hits),
            rendered=rendered,
            floors=tuple(FloorShown(**asdict(figure)) for figure in proposal.figures),
            view_seq=view_seq,
        )

    def _replayed(self, workspace_id: str, most: int) -> tuple[list[list[ReplayedHit]], int]:
        """The hits of each recall, and how many were rendered, used or not."""
        replayed = []
        in_blocks = 0
        for hits, used, rendered in self._views.rows(_NEWEST, [workspace_id, most]):
            kept = set(json.loads(used)) if used else set()
            if rendered:
                in_blocks += len(kept)
                kept.clear()
            replayed.append(
                [
                    ReplayedHit(hit["confidence"], hit["entry_id"] in kept)
                    for hit in json.loads(hits)
                    if hit["confidence"] is not None  # a neighbour of a hit has none
                ]
            )
        return replayed, in_blocks


ANSWERS: Final[Answers] = ((CALIBRATE, FloorCalibration.propose),)

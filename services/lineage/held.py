"""Adds to a receipt the document writes from which its texts of documents come.

Receipts are completed in the background, so that neither a recall nor a memory block waits. Invariant: of a piece of a
document only the writes that brought its lines are named; of a document in a block all writes that its text is made of.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...schemas.core.ports import ViewReader
from ...schemas.documents.events import DocumentAction
from ...schemas.documents.rules import joint, tier_of_label
from ...schemas.documents.tables import CHUNK_TEXTS, VERSIONS
from ...schemas.lineage.events import MOST_HELD, MemoryGiven
from ...schemas.recall.events import MOST_FURTHER
from ..recall.receipts import DOCUMENT, ReceiptPayload

_PIECES: Final = f"""WITH last AS (SELECT base_seq, seq FROM {VERSIONS} WHERE workspace_id = $workspace AND owner = $owner
        AND tier = $tier AND doc_key IS NOT DISTINCT FROM $key AND seq <= $until ORDER BY seq DESC LIMIT 1)
    SELECT write_id, action, piece FROM {VERSIONS} AS v, last WHERE workspace_id = $workspace AND owner = $owner
        AND tier = $tier AND doc_key IS NOT DISTINCT FROM $key AND v.seq BETWEEN last.base_seq AND last.seq
    ORDER BY v.seq"""
_LAST_LINE: Final = f"""SELECT max(last_line) FROM {CHUNK_TEXTS}
    WHERE workspace_id = ? AND owner = ? AND place = ? AND item = ? AND first_line = ?"""
NOW: Final = 2**62
"""A sequence after all others."""


class Writes:
    """Finds the writes.

    Args:
        views: The views.
    """

    def __init__(self, views: ViewReader) -> None:
        self._views = views

    def complete(self, workspace_id: str, payload: ReceiptPayload) -> ReceiptPayload:
        """The receipt with the writes of its documents; blocking."""
        if isinstance(payload, MemoryGiven):
            until = payload.view_seq or NOW
            texts = [
                text
                if text.kind != DOCUMENT
                else text.model_copy(
                    update={"entry_ids": tuple(self.of(workspace_id, text.id, None, until))[-MOST_HELD:]}
                )
                for text in payload.texts
            ]
            return payload.model_copy(update={"texts": tuple(texts)})
        pieces = [*payload.chunks, *(text.id for text in payload.texts if text.kind == DOCUMENT)]
        until = payload.view_seq or NOW
        found: dict[str, None] = {}
        for piece in pieces:
            document, _, line = piece.rpartition(":")
            if line.isdecimal():
                found.update(dict.fromkeys(self.of(workspace_id, document, int(line), until)))
        return payload.model_copy(update={"held": (*payload.held, *found)[:MOST_FURTHER]})

    def of(self, workspace_id: str, document: str, first_line: int | None, until: int) -> Iterator[str]:
        """Blocking: the writes of a document ``<owner>/<label>``, or of its piece that begins at a line."""
        owner, _, label = document.partition("/")
        if (known := tier_of_label(label)) is None:
            return
        tier, key = known
        last_line = 0
        if first_line is not None:
            params = [workspace_id, owner, tier, key or "", first_line]
            [(found,)] = self._views.rows(_LAST_LINE, params)
            last_line = found or first_line
        named = {"workspace": workspace_id, "owner": owner, "tier": tier, "key": key, "until": until}
        newlines, before, end = 0, 0, ""
        for write_id, action, piece in self._views.rows(_PIECES, named):
            if piece is None:  # it was swept: its lines cannot be counted
                yield write_id
                continue
            added = joint(end, piece) if action == DocumentAction.APPEND else piece
            newlines += added.count("\n")
            end = added[-1:] or end
            lines = newlines + (end not in ("", "\n"))
            if first_line is None or (before < last_line and lines >= first_line):
                yield write_id
            before = lines

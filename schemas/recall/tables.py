"""The table of receipts: what recalls returned to whom."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..core.table import Ms, Seq, Table

RECEIPTS_PROJECTION: Final = "receipts"


class ReceiptRow(NamedTuple):
    """A recall that was answered: who asked, which hits were returned, and which of them reached a prompt."""

    key: Seq  # hash of workspace and receipt
    workspace_id: str
    receipt: str  # the id of its entry
    ts_ms: Ms
    published_ms: Ms
    asked_by: str | None  # id of the token
    agent_id: str | None  # the agent of the caller
    crew_id: str | None
    scope: str
    of_agent_id: str | None  # the agent whose memories were searched
    of_crew_id: str | None
    query: str
    recipe: str
    model: str | None
    mode: str | None
    floor: float | None
    mean_cosine: float | None
    hits: str  # JSON list of objects: entry_id, score, confidence
    rendered: bool
    used: str | None  # JSON list of entry ids; NULL until a use is reported
    used_ms: Ms | None
    seq: Seq


RECEIPTS: Final = Table("memory_receipts", ReceiptRow, RECEIPTS_PROJECTION, key=("key", "workspace_id", "receipt"))

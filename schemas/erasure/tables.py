"""Tables of erasures: each with its state, and the ids that may not come back."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..core.table import Int32, Ms, Seq, Table

ERASURES_PROJECTION: Final = "erasures"


class ErasureRow(NamedTuple):
    """An erasure."""

    workspace_id: str
    erasure_id: str
    state: str  # requested, scoped, completed
    reason: str
    actor_type: str
    actor_id: str | None
    requested_ms: Ms
    completed_ms: Ms | None
    messages: Int32  # in its scope
    parts: Int32  # of ``erasure.scoped`` that are folded
    counts: str  # JSON object of its receipt; ``{}`` before it
    not_proven: str  # JSON list of its receipt; ``[]`` before it
    seq: Seq  # of its last event


class ErasedIdRow(NamedTuple):
    """An id that was erased, as a hash: neither an entry nor a retry may bear it again."""

    key: Seq  # ``ids.name_key`` of workspace and id
    workspace_id: str
    erasure_id: str


class LateRow(NamedTuple):
    """A message that came after its id was erased, until it is deleted."""

    seq: Seq
    workspace_id: str
    erasure_id: str
    scoped: bool  # whether its deletion is announced


LATE_MESSAGES: Final = Table("late_messages", LateRow, ERASURES_PROJECTION, key=("seq",))
ERASURE_ROWS: Final = Table("erasures", ErasureRow, ERASURES_PROJECTION, key=("workspace_id", "erasure_id"))
ERASED_IDS: Final = Table("erased_ids", ErasedIdRow, ERASURES_PROJECTION, key=("key",))

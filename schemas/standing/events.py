"""Payloads of retractions and their reversal."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from ..core.entry import Id
from ..core.payload import ControlPayload
from ..core.sequence_set import InParts, SequenceSet


class TargetKind(StrEnum):
    """The kind of the retracted objects in ``targets.ids``."""

    ENTRY = "entry"
    DOCUMENT = "document"


class RetractionMade(ControlPayload, InParts):
    """Targets no longer count; they stay in the journal.

    Attributes:
        stale: Whether the targets were true and are out of date; otherwise they are withdrawn.
        superseded_by: The entry that replaces them.
    """

    ENTRY_TYPE = "retraction.made"
    kind: TargetKind = TargetKind.ENTRY
    targets: SequenceSet
    stale: bool = False
    superseded_by: Id | None = None
    reason: str = Field(min_length=1, max_length=1_000)


class RetractionRestored(ControlPayload, InParts):
    """Retracted targets count again."""

    ENTRY_TYPE = "retraction.restored"
    kind: TargetKind = TargetKind.ENTRY
    targets: SequenceSet
    reason: str = Field(min_length=1, max_length=1_000)

"""Payloads of retractions, their reversal, and corrections."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal

from pydantic import BaseModel, Field

from ..core.entry import Id
from ..core.payload import STORED, ControlPayload, EntryTypeInfo, PublisherKind
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


MOST_RETIRED: Final = 500
"""Most statements that one correction retires; about 100 KB."""


class Retired(BaseModel):
    """A statement that a correction retired.

    Attributes:
        kind: Entries are also rules, lessons and proposals. A filing is a drawer, named by the entry that filed it; older
            events name drawers by their own ids, which follow from their texts.
        id: Id of the entry, filing or fact.
        by: Id of the entry, filing or fact that replaces it; None if nothing does.
        since_ms: From when the replacement holds, milliseconds since the epoch; None means from the correction on.
    """

    model_config = STORED
    kind: Literal["entry", "drawer", "fact", "filing"]
    id: str = Field(min_length=1, max_length=320)
    by: str | None = Field(default=None, max_length=320)
    since_ms: int | None = None


class StatementCorrected(ControlPayload):
    """A wrong statement is replaced by another one; what made the same claim or was derived from it is retired with it.

    It holds ids alone: the new texts are in events of their own, before this one.

    Attributes:
        retired: First the statement that was corrected, then the others.
        reviews: How many further texts the correction listed for review.
    """

    ENTRY_TYPE = "statement.corrected"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.RESERVED, noise=True)
    retired: tuple[Retired, ...] = Field(min_length=1, max_length=MOST_RETIRED)
    reviews: int = Field(default=0, ge=0)
    reason: str = Field(default="", max_length=1_000)

    def ids(self, kind: str) -> dict[str, str | None]:
        """The retired ids of a kind, each with what replaces it."""
        return {one.id: one.by for one in self.retired if one.kind == kind}

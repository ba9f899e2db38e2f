"""Payloads of erasures and accepted losses, which explain why sequences are missing from JOURNAL.

Invariant: they never hold text that was erased. An entry explains only sequences below its own: a stream that lost its
end assigns sequences a second time.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, StringConstraints, model_validator

from ..entry import Id
from ..sequence_set import MAX_IDS, InParts, SequenceSet
from .payload import ControlPayload, EntryTypeInfo, PublisherKind

MAX_REASON: Final = 500
"""Maximum length of a reason in characters."""

SubjectHash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32,128}$")]
"""Hex keyed hash of a data subject; the key lies outside the journal."""


class ErasureRequested(ControlPayload):
    """Starts an erasure and raises the fence: names ids or a keyed hash of the data subject, no text."""

    ENTRY_TYPE = "erasure.requested"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.SERVICE)
    erasure_id: Id
    entry_ids: tuple[Id, ...] = Field(default=(), max_length=MAX_IDS)
    subject_hash: SubjectHash | None = None
    reason: str = Field(default="", max_length=MAX_REASON)

    @model_validator(mode="after")
    def _names_something(self) -> ErasureRequested:
        if not self.entry_ids and self.subject_hash is None:
            raise ValueError("an erasure must name entries or a data subject")
        return self


class ErasureScoped(ControlPayload, InParts):
    """All ids and sequences that are erased; folds remove their rows, and the messages are deleted."""

    ENTRY_TYPE = "erasure.scoped"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.SERVICE)
    erasure_id: Id
    scope: SequenceSet
    reason: str = Field(default="", max_length=MAX_REASON)


class ErasureCompleted(ControlPayload):
    """Receipt of an erasure: counts by kind."""

    ENTRY_TYPE = "erasure.completed"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.SERVICE)
    erasure_id: Id
    counts: dict[str, int] = Field(default_factory=dict)


class LossAccepted(ControlPayload, InParts):
    """An operator (the entry's actor) accepts that sequences of JOURNAL are lost.

    Attributes:
        loss_id: Shared by its parts.
        lost: The sequences, and as many ids of lost entries known to the views as fit.
        kept_as: Name of the views file that was kept; it may hold lost entries.
    """

    ENTRY_TYPE = "journal.loss_accepted"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.SERVICE)
    loss_id: Id
    lost: SequenceSet
    kept_as: str = Field(default="", max_length=255)
    reason: str = Field(default="", max_length=MAX_REASON)


EXPLANATIONS: Final = (ErasureScoped.ENTRY_TYPE, LossAccepted.ENTRY_TYPE)
"""Entry types that explain why sequences are missing."""

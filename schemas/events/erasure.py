"""Payloads of erasures and of accepted losses: why a sequence may be missing from JOURNAL.

Invariant: they hold ids, sequences, counts and an operator's reason, never a text of what is gone. A sequence is explained
only by an entry that lies behind it: where the stream has lost its end, sequences are given a second time.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, StringConstraints, model_validator

from ..entry import Id
from ..sequence_set import MAX_IDS, InParts, SequenceSet
from .payload import ControlPayload

MAX_REASON: Final = 500
"""Characters of a reason."""

SubjectHash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32,128}$")]
"""Hex keyed hash of a data subject; the key lies outside the journal."""


class ErasureRequested(ControlPayload):
    """Raises the fence: ids, or a keyed hash of the data subject; no text."""

    ENTRY_TYPE = "erasure.requested"
    erasure_id: Id
    entry_ids: tuple[Id, ...] = Field(default=(), max_length=MAX_IDS)
    subject_hash: SubjectHash | None = None
    reason: str = Field(default="", max_length=MAX_REASON)

    @model_validator(mode="after")
    def _names_something(self) -> ErasureRequested:
        if not self.entry_ids and self.subject_hash is None:
            raise ValueError("an erasure names entries or a data subject")
        return self


class ErasureScoped(ControlPayload, InParts):
    """The closed set that is erased, every id and sequence; the folds act on it and the messages are deleted."""

    ENTRY_TYPE = "erasure.scoped"
    erasure_id: Id
    scope: SequenceSet
    reason: str = Field(default="", max_length=MAX_REASON)


class ErasureCompleted(ControlPayload):
    """The receipt: how much was erased, of what kind."""

    ENTRY_TYPE = "erasure.completed"
    erasure_id: Id
    counts: dict[str, int] = Field(default_factory=dict)


class LossAccepted(ControlPayload, InParts):
    """An operator accepts that sequences of JOURNAL are lost; who it was says the entry's actor.

    Attributes:
        loss_id: Shared by its parts.
        lost: The sequences; ids of lost entries that the views knew, as far as there is room for them.
        kept_as: Name of the views file that was kept, which may know more than the stream.
        reason: Why.
    """

    ENTRY_TYPE = "journal.loss_accepted"
    loss_id: Id
    lost: SequenceSet
    kept_as: str = Field(default="", max_length=255)
    reason: str = Field(default="", max_length=MAX_REASON)


EXPLANATIONS: Final = (ErasureScoped.ENTRY_TYPE, LossAccepted.ENTRY_TYPE)
"""Entry types that explain why sequences are missing."""

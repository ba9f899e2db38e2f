"""The record that a person's data was exported."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ..core.entry import Id
from ..core.payload import ControlPayload, EntryTypeInfo, PublisherKind
from ..entries.events import MAX_REASON, SubjectHash


class PersonExported(ControlPayload):
    """An export of a person's data was asked for, was completed, or failed; the person is named by a keyed hash.

    Attributes:
        export_id: Id of the export; its two events have the same id.
        state: ``requested`` before anything is read, then ``completed`` or ``failed``.
        counts: Number of exported messages by family, once completed.
        error: Why it failed; then nothing was exported.
    """

    ENTRY_TYPE = "person.exported"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.RESERVED, noise=True)
    export_id: Id
    subject_hash: SubjectHash
    reason: str = Field(min_length=1, max_length=MAX_REASON)
    state: Literal["requested", "completed", "failed"]
    counts: dict[str, int] = Field(default_factory=dict)
    error: str = Field(default="", max_length=500)

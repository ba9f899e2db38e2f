"""Payloads of compactions, erasures, accepted losses and restored backups: what happens to stored entries.

Invariant: the messages of archived entries stay in the stream.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, StringConstraints, model_validator

from ..core.entry import Id, Timestamp
from ..core.payload import ControlPayload, EntryTypeInfo, PublisherKind
from ..core.sequence_set import MAX_IDS, InParts, SequenceSet, size_of

PART_ENTRIES: Final = 4_500
"""Maximum number of entries of one event: sequences of up to 13 digits fit into ``sequence_set.MAX_TEXT``."""


class MemoryCompacted(ControlPayload, InParts):
    """Entries of one crew, UTC day and type are archived; its ``ts`` is 23:59:59 of that day.

    A large bucket has several parts; all figures cover this part only.

    Attributes:
        crew_id: The crew, None for entries without one.
        entry_type: The type of the archived entries.
        count: Number of archived entries.
        bytes_sum: Bytes of their messages.
        bytes_freed: Bytes of summaries and payloads that the archive does not keep.
        first_ts: Time of the oldest archived entry (RFC 3339, UTC).
        cutoff: Upper bound of the times of the archived entries, exclusive.
        entries: Their sequences.
    """

    ENTRY_TYPE = "memory.compacted"
    INFO = EntryTypeInfo(group="memory", publisher=PublisherKind.SERVICE)
    crew_id: Id | None = None
    bucket_date: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")
    entry_type: str = Field(min_length=1, max_length=96)
    count: int = Field(ge=1, le=PART_ENTRIES)
    bytes_sum: int = Field(ge=0)
    bytes_freed: int = Field(ge=0)
    first_ts: str
    last_ts: str
    cutoff: str
    entries: SequenceSet

    @model_validator(mode="after")
    def _counts_its_entries(self) -> MemoryCompacted:
        if size_of(self.entries.ranges) != self.count:
            raise ValueError("count must be the number of sequences in entries")
        return self


# Payloads of erasures and accepted losses, which explain why sequences are missing from JOURNAL.


MAX_REASON: Final = 500
"""Maximum length of a reason in characters."""

NOT_RECORDED: Final = ("earlier versions did not record what the erasure could not reach",)
"""Stands in receipts that lack ``not_proven``."""


def _is_absent(value: object) -> bool:
    return value is None


SubjectHash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32,128}$")]
"""Hex keyed hash of a data subject; the key lies outside the journal."""


class ErasureRequested(ControlPayload):
    """Starts an erasure and raises the fence: names ids, or a keyed hash of a person, an author or a source; no text.

    More ids than one event can hold are in several events with the same ``erasure_id``.
    """

    ENTRY_TYPE = "erasure.requested"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.SERVICE)
    erasure_id: Id
    entry_ids: tuple[Id, ...] = Field(default=(), max_length=MAX_IDS)
    subject_hash: SubjectHash | None = None
    author_hash: SubjectHash | None = Field(default=None, exclude_if=_is_absent)
    source_hash: SubjectHash | None = Field(default=None, exclude_if=_is_absent)
    reason: str = Field(default="", max_length=MAX_REASON)

    @property
    def hashes(self) -> dict[str, str]:
        """Criterion (``schemas/erasure/criteria``) → the hash of its value, for those that are given."""
        given = {"subject": self.subject_hash, "author": self.author_hash, "source": self.source_hash}
        return {name: value for name, value in given.items() if value is not None}

    @model_validator(mode="after")
    def _names_something(self) -> ErasureRequested:
        if not self.entry_ids and not self.hashes:
            raise ValueError("an erasure must name entries, a data subject, an author or a source")
        return self


class ErasureScoped(ControlPayload, InParts):
    """All ids and sequences that are erased; folds remove their rows, and the messages are deleted."""

    ENTRY_TYPE = "erasure.scoped"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.SERVICE)
    erasure_id: Id
    scope: SequenceSet
    reason: str = Field(default="", max_length=MAX_REASON)


class ErasureCompleted(ControlPayload):
    """Receipt of an erasure.

    Attributes:
        counts: How many were removed, by store.
        not_proven: What the erasure could not reach, in words. A receipt that names nothing claims too much and is not
            valid.
    """

    ENTRY_TYPE = "erasure.completed"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.SERVICE)
    erasure_id: Id
    counts: dict[str, int] = Field(default_factory=dict)
    not_proven: tuple[Annotated[str, StringConstraints(min_length=1, max_length=500)], ...] = Field(
        default=NOT_RECORDED, min_length=1, max_length=50
    )


class LossAccepted(ControlPayload, InParts):
    """An operator (the entry's actor) accepts that sequences of JOURNAL are lost.

    Attributes:
        loss_id: Id of the loss; all parts of the event have the same id.
        lost: The lost sequences, and as many ids as fit of lost entries that the views know.
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


# The record that a journal was made from a backup.


class JournalRestored(ControlPayload):
    """The journal was made from a backup.

    Attributes:
        backup_sha256: Hash of the backup's file.
        made_at: When the backup was made.
        last_seq: Last sequence in the backup.
        messages: Number of messages of the journal in the backup.
    """

    ENTRY_TYPE = "journal.restored"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.SERVICE)
    backup_sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    made_at: Timestamp
    last_seq: int = Field(ge=0)
    messages: int = Field(ge=0)

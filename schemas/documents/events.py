"""Writes of memory documents on ``document.<workspace>.<owner>.<tier>.<key>``.

``append`` carries only the new lines, so that a growing log does not repeat its text and each line can be erased alone.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import BaseModel, Field, StringConstraints, ValidationError, model_validator

from ..core import headers as h
from ..core.derived import OutgoingMessage
from ..core.entry import ActorType, Id, Name
from ..core.envelope import DocumentWritten
from ..core.errors import FoldError
from ..core.ids import derived_id, message_id
from ..core.payload import STORED, ControlPayload, EntryTypeInfo, PublisherKind
from ..core.recorded_settings import MemorySettings
from ..core.subjects import Subject, document_subject, is_document_key, key_token

MAX_DOCUMENT_CHARS: Final = 262_144
"""Maximum number of characters; above the largest cap of a tier, the 250,000 bytes of a topic (``documents/rules``)."""
MAX_CAUSES: Final = 1_000
"""Maximum number of ids in ``derived_from`` of one write."""
SOURCE_PATTERN: Final = r"^[a-z][a-z0-9_]{0,31}$"
"""Source of a write. An open set; in use: api, mcp, cli, mirror, import, consolidation, restore."""


class DocumentAction(StrEnum):
    """Effect of a write on its document. A closed set."""

    REPLACE = "replace"
    APPEND = "append"
    RETRACT = "retract"
    RESTORE = "restore"


class DocumentBody(BaseModel):
    """The JSON body of a document write; workspace, owner and tier are in the subject.

    Attributes:
        write_id: Id of the write, unique in its workspace; a write that is sent twice counts once.
        key: The key within the tier, an id or a path; None if the tier holds a single document.
        action: ``replace``: ``content`` is the whole text. ``append``: ``content`` is only the added text. ``retract``:
            the document no longer counts, and there is no content. ``restore``: the document counts again, with
            ``content`` as its whole text.
        derived_from: Ids of the entries and document writes from which the content was made.
        reason: The reason, for people; mainly of ``retract`` and ``restore``.
    """

    model_config = STORED
    write_id: Id
    key: str | None = None
    action: DocumentAction
    content: str = Field(default="", max_length=MAX_DOCUMENT_CHARS)
    source: Annotated[str, StringConstraints(pattern=SOURCE_PATTERN)]
    actor_type: ActorType
    actor_id: Name | None = None
    data_subject_id: Name | None = None
    derived_from: tuple[Id, ...] = Field(default=(), max_length=MAX_CAUSES)
    reason: str = Field(default="", max_length=1_000)
    schema_version: int = Field(default=1, ge=1, le=32_767)

    @model_validator(mode="after")
    def _fits(self) -> DocumentBody:
        if self.key is not None and not is_document_key(self.key):
            raise ValueError("key is not a document key")
        if self.action is DocumentAction.RETRACT and self.content:
            raise ValueError("a retraction has no content")
        return self


def encode_document(event: DocumentWritten) -> OutgoingMessage:
    """The message of a write, without absent fields. The broker assigns ``seq`` and ``published_ms``.

    Raises:
        pydantic.ValidationError: If the event breaks the format.
    """
    body = DocumentBody(
        write_id=event.write_id,
        key=event.key,
        action=DocumentAction(event.action),
        content=event.content,
        source=event.source,
        actor_type=ActorType(event.actor_type),
        actor_id=event.actor_id,
        data_subject_id=event.data_subject_id,
        derived_from=event.derived_from,
        reason=event.reason,
    )
    fact_id = derived_id("document", 1, f"{event.workspace_id}/{event.write_id}")
    return OutgoingMessage(
        document_subject(event.workspace_id, event.owner, event.tier, event.key),
        body.model_dump_json(exclude_defaults=True).encode(),
        {h.MSG_ID: message_id(event.workspace_id, fact_id), h.FORMAT: h.FORMAT_VERSION},
    )


def decode_document(seq: int, subject: Subject, body: bytes, published_ms: int) -> DocumentWritten:
    """Decode a document write.

    Raises:
        FoldError: If the body is not a document write, or its key does not match the subject.
    """
    try:
        read = DocumentBody.model_validate_json(body)
    except ValidationError:
        raise FoldError(f"the document write at {seq} is malformed") from None
    if key_token(read.key) != subject.key:
        raise FoldError(f"the key in the body of the document write at {seq} does not match its subject", field="key")
    return DocumentWritten(
        seq=seq,
        workspace_id=subject.workspace,
        owner=subject.owner or "",
        tier=subject.kind,
        key=read.key,
        action=read.action.value,
        content=read.content,
        source=read.source,
        write_id=read.write_id,
        actor_type=read.actor_type.value,
        published_ms=published_ms,
        actor_id=read.actor_id,
        data_subject_id=read.data_subject_id,
        derived_from=read.derived_from,
        reason=read.reason,
    )


# Payloads about memory documents beside their writes: settings, the sweep of versions, writes that were refused.


RejectionReason = Literal["cap", "scrubber", "injection", "provider"]


class MemoryConfigUpdated(MemorySettings, ControlPayload):
    """All settings of a workspace's memory documents; the last event counts."""

    ENTRY_TYPE = "memory.config_updated"
    INFO = EntryTypeInfo(group="memory", publisher=PublisherKind.RESERVED)


class MemoryVersionsSwept(ControlPayload):
    """The texts of the workspace's old versions were removed; current texts are not affected.

    Attributes:
        cutoff_ms: Versions published before this time, milliseconds since the epoch.
        keep_latest: Number of versions of each document that are kept, however old they are.
        count: Number of versions whose text was removed, by the views of the service.
    """

    ENTRY_TYPE = "memory.versions_swept"
    INFO = EntryTypeInfo(group="memory", publisher=PublisherKind.RESERVED, noise=True, quiet=True)
    cutoff_ms: int = Field(ge=0, le=2**53)
    keep_latest: int = Field(ge=0, le=1_000)
    count: int = Field(default=0, ge=0)


class MemoryWriteRejected(ControlPayload):
    """A write that was refused.

    Attributes:
        owner: Owner of the document (``schemas/documents/rules.owner_of``).
        reason: The check that refused it; ``provider`` if the memory provider refused it.
        finding: The scanners' finding as ``category/pattern``; ``provider/<error>`` if the memory provider refused it.
        bytes: Size that the document would have had.
        cap_bytes: Maximum size of the document.
    """

    ENTRY_TYPE = "memory.write_rejected"
    INFO = EntryTypeInfo(group="memory", publisher=PublisherKind.RESERVED)
    tier: str = Field(min_length=1, max_length=32)
    key: str | None = Field(default=None, max_length=512)
    owner: str = Field(min_length=1, max_length=66)
    reason: RejectionReason
    source: str = Field(default="api", max_length=32)
    finding: str | None = Field(default=None, max_length=200)
    bytes: int | None = Field(default=None, ge=0)
    cap_bytes: int | None = Field(default=None, ge=0)


class MemoryWriteVerifierBlocked(ControlPayload):
    """A write that the verifier refused.

    Attributes:
        problem: Name of the problem: a citation out of date, a pinned fact contradicted.
        conflicts_with: Entries and document writes that the write contradicts.
    """

    ENTRY_TYPE = "memory.write_verifier_blocked"
    INFO = EntryTypeInfo(group="memory", publisher=PublisherKind.RESERVED)
    tier: str = Field(min_length=1, max_length=32)
    key: str | None = Field(default=None, max_length=512)
    owner: str = Field(min_length=1, max_length=66)
    problem: str = Field(min_length=1, max_length=200)
    source: str = Field(default="api", max_length=32)
    conflicts_with: tuple[Id, ...] = Field(default=(), max_length=100)

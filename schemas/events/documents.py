"""Writes of memory documents on ``document.<workspace>.<owner>.<tier>.<key>``.

``append`` carries only the new lines, so that a growing log does not repeat its text and each line can be erased alone.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import BaseModel, Field, StringConstraints, ValidationError, model_validator

from ..entry import ActorType, Id, Name
from ..errors import FoldError
from ..ids import derived_id, message_id
from ..subjects import Subject, document_subject, is_document_key, key_token
from . import headers as h
from .derived import OutgoingMessage
from .envelope import DocumentWritten
from .payload import STORED

MAX_DOCUMENT_CHARS: Final = 262_144
"""Maximum number of characters; above the largest cap of a tier, the 250,000 bytes of a topic (``rules/tiers``)."""
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
        write_id: The write's own id, unique in its workspace: a write that is sent twice counts once.
        key: The key within the tier, an id or a path; None where the tier has one document.
        action: ``replace``: ``content`` is the whole text. ``append``: it is only the added text. ``retract``: the
            document no longer counts, there is no content. ``restore``: it counts again, with ``content`` as its
            whole text.
        derived_from: Ids of the entries and document writes that the content was made of.
        reason: Why, for people; above all of ``retract`` and ``restore``.
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

"""Writes of memory documents on ``document.<workspace>.<owner>.<tier>.<key>``.

Invariant: a message holds the document's whole text after the write, so the last one is the document.
"""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from crew_journal.schemas.entry import Name
from crew_journal.schemas.errors import FoldError
from crew_journal.schemas.events import headers as h
from crew_journal.schemas.events.derived import OutgoingMessage
from crew_journal.schemas.events.envelope import DocumentWritten
from crew_journal.schemas.ids import derived_id, message_id
from crew_journal.schemas.subjects import Subject, document_subject

MAX_DOCUMENT_CHARS: Final = 100_000
"""The filesystem ceiling of contract §0 row 10; tiers have lower caps of their own."""


class DocumentBody(BaseModel):
    """The JSON body of a document write."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    content: str = Field(max_length=MAX_DOCUMENT_CHARS)
    actor_id: Name | None = None
    schema_version: int = Field(default=1, ge=1)


def encode_document(event: DocumentWritten, write_id: str) -> OutgoingMessage:
    """The message of a write; ``write_id`` is the caller's, so that a retried write counts once."""
    body = DocumentBody(content=event.content, actor_id=event.actor_id)
    fact_id = derived_id("document", 1, f"{event.workspace_id}/{write_id}")
    return OutgoingMessage(
        document_subject(event.workspace_id, event.owner, event.tier, event.key),
        body.model_dump_json(exclude_none=True).encode(),
        {h.MSG_ID: message_id(event.workspace_id, fact_id), h.FORMAT: h.FORMAT_VERSION},
    )


def decode_document(seq: int, subject: Subject, body: bytes, published_ms: int) -> DocumentWritten:
    """A document write from its message.

    Raises:
        FoldError: If the body is no document.
    """
    try:
        read = DocumentBody.model_validate_json(body)
    except ValidationError:
        raise FoldError(f"the document write at {seq} is malformed") from None
    return DocumentWritten(
        seq=seq,
        workspace_id=subject.workspace,
        owner=subject.owner or "",
        tier=subject.kind,
        key=subject.key,
        content=read.content,
        actor_id=read.actor_id,
        published_ms=published_ms,
    )

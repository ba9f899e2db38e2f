"""Answers and errors as they are sent over HTTP; the server (OpenAPI) and the client share them.

Invariant: answers only gain fields, and readers ignore fields that they do not know.
"""

from __future__ import annotations

from pydantic import ConfigDict, Field

from .core.entry import Id, JournalEntry, Priority
from .core.operation import Answer
from .standing.operations import Standing


class Receipt(Answer):
    """An acked entry: id and sequence; ``duplicate`` if the journal already held it.

    ``warnings`` names the ids in ``supersedes`` whose entries this entry is not allowed to supersede.
    """

    id: Id
    seq: int = Field(ge=1)
    duplicate: bool = False
    warnings: tuple[str, ...] = ()


class AppendAnswer(Answer):
    """One receipt per submitted entry, in order."""

    entries: tuple[Receipt, ...]


class EntryRecord(JournalEntry):
    """A stored entry with its sequence, its live priority, and why it no longer counts (null if it counts).

    An archived entry (``archived``) keeps only the beginning of its summary and payload; a truncated payload is
    ``{"truncated": "<its beginning>"}``. ``bucket_id`` names the ``memory.compacted`` that archived it,
    ``original_bytes`` is the size of its message in the stream.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", title="EntryRecord")
    seq: int = Field(ge=1)
    live_priority: Priority = Priority.NORMAL
    standing: Standing | None = None
    archived: bool = False
    bucket_id: Id | None = None
    original_bytes: int | None = None


class EntriesAnswer(Answer):
    """A page of entries, newest first; ``next_cursor`` only if the page is full."""

    entries: tuple[EntryRecord, ...]
    next_cursor: str | None
    view_seq: int


class CountAnswer(Answer):
    """The number of entries that match the filters."""

    count: int
    view_seq: int


class EntryAnswer(EntryRecord):
    """One entry, and the sequence that the views had reached."""

    model_config = ConfigDict(frozen=True, extra="ignore", title="EntryAnswer")
    view_seq: int


class TailGap(Answer):
    """Event ``gap`` of the stream: the client missed more entries than the service replays."""

    missed: int
    after: int
    before: int


class ProblemField(Answer):
    """One invalid field."""

    field: str
    problem: str
    fix: str = ""


class Problem(Answer):
    """An error as problem+json (RFC 9457); ``code`` is its class in ``schemas.core.errors``."""

    type: str = "about:blank"
    code: str | None = None
    title: str
    status: int
    detail: str
    hint: str = ""
    trace_id: str
    field: str | None = None
    problems: tuple[ProblemField, ...] | None = None

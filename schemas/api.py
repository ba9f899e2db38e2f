"""What crosses HTTP beside the entry itself: answers and problems; shared by server (OpenAPI) and client.

Invariant: answers only ever gain fields, and readers ignore those they do not know.
"""

from __future__ import annotations

from pydantic import ConfigDict, Field

from .entry import Id, JournalEntry
from .operations.operation import Answer


class Receipt(Answer):
    """An acked entry: its id and its sequence in the journal; ``duplicate`` if it had been there before."""

    id: Id
    seq: int = Field(ge=1)
    duplicate: bool = False


class AppendAnswer(Answer):
    """One receipt per submitted entry, in order."""

    entries: tuple[Receipt, ...]


class EntryRecord(JournalEntry):
    """An entry as read back, with its sequence in the journal."""

    model_config = ConfigDict(frozen=True, extra="ignore", title="EntryRecord")
    seq: int = Field(ge=1)


class EntriesAnswer(Answer):
    """A page of entries, newest first; ``next_cursor`` only if the page is full."""

    entries: tuple[EntryRecord, ...]
    next_cursor: str | None
    view_seq: int


class CountAnswer(Answer):
    """How many entries pass the filters."""

    count: int
    view_seq: int


class EntryAnswer(EntryRecord):
    """One entry, and how far the views were."""

    model_config = ConfigDict(frozen=True, extra="ignore", title="EntryAnswer")
    view_seq: int


class TailGap(Answer):
    """Event ``gap`` of the stream: more was missed than is replayed."""

    missed: int
    after: int
    before: int


class TailCut(Answer):
    """Event ``cut`` of the stream: it ends here; resume after ``resume_after``."""

    reason: str
    resume_after: int


class ProblemField(Answer):
    """One offending field."""

    field: str
    problem: str
    fix: str = ""


class Problem(Answer):
    """An error as problem+json (RFC 9457)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    hint: str = ""
    trace_id: str
    field: str | None = None
    problems: tuple[ProblemField, ...] | None = None

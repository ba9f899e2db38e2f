"""The journal entry and its validation.

Invariant: the format only gains optional fields. ``build_entry`` validates entries from clients; ``JournalEntry`` is
the stored form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from .errors import FieldProblem, InvalidEntry
from .ids import ID_PATTERN, NO_ID, WORKSPACE_PATTERN
from .subjects import ENTRY_TYPE_PATTERN, MAX_ENTRY_TYPE
from .timestamps import RFC3339_PATTERN, format_ts, parse_ts

MAX_SUMMARY: Final = 2_000
"""Maximum length of a summary in characters."""
MAX_ENTRY_BYTES: Final = 256 * 1024
"""Maximum size of a whole entry as stored JSON, in bytes."""
MAX_NAME: Final = 128
"""Maximum length of an actor's or data subject's name, in characters."""
MAX_SUPERSEDED: Final = 100
"""Maximum number of entries that one entry may supersede."""

NOT_BLANK_PATTERN: Final = r"[^\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
"""Matches a character that is not white space for ``str.isspace``; readers of JSON Schema disagree about ``\\s``."""

_LINE_BREAKS: Final = re.compile("\r\n|[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")


class Severity(StrEnum):
    """Severity of an entry, least severe first."""

    INFO = "info"
    NOTICE = "notice"
    WARN = "warn"
    ERROR = "error"


class Priority(StrEnum):
    """Priority of an entry; only operators can set a value other than ``normal``."""

    NORMAL = "normal"
    HIGH = "high"
    PIN = "pin"
    PERMANENT = "permanent"


class ActorType(StrEnum):
    """Kind of the actor of an entry."""

    AGENT = "agent"
    USER = "user"
    SYSTEM = "system"
    KEEPER = "keeper"
    SIDECAR = "sidecar"
    ORCHESTRATOR = "orchestrator"


def _not_reserved(text: str) -> str:
    if text == NO_ID:
        raise ValueError("the id _ is reserved")
    return text


def _one_line(text: str) -> str:
    line = text if text.isprintable() else _LINE_BREAKS.sub(" ", text)  # no line break is printable
    if line.isspace():
        raise ValueError("must not be blank")
    return line


Id = Annotated[
    str,
    StringConstraints(pattern=ID_PATTERN),
    AfterValidator(_not_reserved),
    WithJsonSchema({"type": "string", "pattern": ID_PATTERN, "not": {"const": NO_ID}}),
]
WorkspaceId = Annotated[str, StringConstraints(pattern=WORKSPACE_PATTERN)]
StoredWorkspaceId = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
EntryType = Annotated[str, StringConstraints(pattern=ENTRY_TYPE_PATTERN, max_length=MAX_ENTRY_TYPE)]
Name = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_NAME, pattern=r"^[^\x00-\x1f\x7f\u0085\u2028\u2029]+$"),
]
Summary = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_SUMMARY),
    AfterValidator(_one_line),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_SUMMARY, "pattern": NOT_BLANK_PATTERN}),
]
Timestamp = Annotated[
    datetime,
    BeforeValidator(parse_ts),
    PlainSerializer(format_ts, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time", "pattern": RFC3339_PATTERN}),
]

_EMPTY_IS_NULL: Final = (
    "id",
    "crew_id",
    "agent_id",
    "mission_id",
    "trace_id",
    "span_id",
    "actor_id",
    "data_subject_id",
    "supersedes",
    "valid_at",
)


class JournalEntry(BaseModel):
    """One immutable entry, complete as stored; the stream's subject repeats workspace, crew, agent and type.

    ``ts`` is the time of the act, UTC in milliseconds. ``trace_id`` is the run or session. ``data_subject_id`` names
    the person whose personal data it holds. A correction is a new entry with ``refs.parent_entry_id``. ``supersedes``
    holds ids of entries that no longer count because of this one. ``valid_at`` is the time from which its statement
    holds, if that is not ``ts``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", title="JournalEntry", use_enum_values=False)

    id: Id
    workspace_id: StoredWorkspaceId
    crew_id: Id | None = None
    agent_id: Id | None = None
    mission_id: Id | None = None
    trace_id: Id | None = None
    span_id: Id | None = None
    ts: Timestamp
    entry_type: EntryType
    severity: Severity = Severity.INFO
    priority: Priority = Priority.NORMAL
    actor_type: ActorType = ActorType.AGENT
    actor_id: Name | None = None
    summary: Summary
    payload: dict[str, Any] = Field(default_factory=dict)
    refs: dict[str, Any] = Field(default_factory=dict)
    data_subject_id: Name | None = None
    supersedes: tuple[Id, ...] = Field(default=(), max_length=MAX_SUPERSEDED)
    valid_at: Timestamp | None = None
    schema_version: int = Field(default=1, ge=1, le=32_767)

    @model_validator(mode="before")
    @classmethod
    def _empty_is_null(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        if "" in data.values():
            return {k: v for k, v in data.items() if not (v == "" and k in _EMPTY_IS_NULL)}
        return data

    def to_record(self) -> dict[str, Any]:
        """The JSON object to store: without absent optional fields, always with ``payload`` and ``refs``."""
        record: dict[str, Any] = {name: value for name, value in self.__dict__.items() if value not in (None, ())}
        record["ts"] = format_ts(self.ts)
        if self.supersedes:
            record["supersedes"] = list(self.supersedes)
        if self.valid_at is not None:
            record["valid_at"] = format_ts(self.valid_at)
        return record


_FIXES: Final[dict[str, str]] = {
    "id": "use 1 to 64 of A-Z a-z 0-9 _ - (not just _), or leave it out to get one",
    "workspace_id": "use 1 to 64 of A-Z a-z 0-9 _ -, not starting with _",
    "crew_id": "use 1 to 64 of A-Z a-z 0-9 _ - (not just _)",
    "ts": "write it like 2026-11-21T09:30:00.000Z, or leave it out for the server's time",
    "entry_type": "one to four lower-case words joined by dots, at most 48 characters, like run.completed",
    "severity": "one of info, notice, warn, error",
    "priority": "one of normal, high, pin, permanent",
    "actor_type": "one of agent, user, system, keeper, sidecar, orchestrator",
    "actor_id": "1 to 128 characters on one line",
    "summary": "1 to 2,000 characters; put longer text into payload",
    "payload": "a JSON object",
    "refs": "a JSON object",
    "data_subject_id": "1 to 128 characters on one line",
    "supersedes": f"a list of at most {MAX_SUPERSEDED} ids of entries",
    "valid_at": "write it like 2026-11-21T09:30:00.000Z, or leave it out",
    "schema_version": "an integer from 1",
}
_REQUIRED: Final = "is required"
_FIXES_LIKE_CREW: Final = ("agent_id", "mission_id", "trace_id", "span_id")


def fix_for(field: str, kind: str) -> str:
    """The fix for an invalid ``field``; ``kind`` is pydantic's error type."""
    if kind == "extra_forbidden":
        return "put fields of your own into payload"
    name = "crew_id" if field in _FIXES_LIKE_CREW else field
    return _FIXES.get(name, "")


def problems_of(error: ValidationError, prefix: str = "") -> tuple[FieldProblem, ...]:
    """Every invalid field of a validation error; never quotes the submitted text."""
    problems = []
    for item in error.errors(include_input=False, include_url=False, include_context=False):
        location = [str(part) for part in item["loc"]]
        field = ".".join(location) or "entry"
        message = _REQUIRED if item["type"] == "missing" else item["msg"].removeprefix("Value error, ")
        problems.append(
            FieldProblem(f"{prefix}{field}", message, fix_for(location[0] if location else "", item["type"]))
        )
    return tuple(problems)


def build_entry(record: Mapping[str, Any], prefix: str = "") -> JournalEntry:
    """Validate a complete record (with ``id``, ``workspace_id`` and ``ts``) as an entry.

    Args:
        record: The fields; unknown ones are an error.
        prefix: Prefix of each field's name in errors (``entries[3].`` in a batch).

    Raises:
        InvalidEntry: Names every invalid field and its fix.
    """
    try:
        return JournalEntry.model_validate(dict(record))
    except ValidationError as error:
        raise InvalidEntry(problems_of(error, prefix)) from None

"""The parts of the client without I/O: requests, rules for resending, and answers. Both clients use them.

Invariant: only repeatable requests are resent, with growing pauses and a limited number of times.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from ...schemas.api import EntryRecord, TailGap
from ...schemas.core.entry import JournalEntry
from ...schemas.core.errors import (
    BrokerUnavailable,
    CrewJournalError,
    EntryTooLarge,
    FieldProblem,
    InvalidEntry,
    InvalidQuery,
    NotFound,
    OverBudget,
    TooManyTails,
    Unavailable,
    ViewsBehind,
    ViewsDamaged,
)
from ...schemas.core.faults import error_of
from ...schemas.core.ids import is_id, mint_entry_id
from ...schemas.core.limits import MAX_BATCH, MAX_BATCH_BYTES, REQUEST_BYTES
from ...schemas.core.operation import UNCHANGED, Operation
from ...schemas.core.timestamps import format_ts

TIMEOUT_S: Final = 40.0
"""Seconds for one answer; an append may wait 30 s for the broker's ack."""
ATTEMPTS: Final = 6
"""Attempts of one request; with the pauses below about 3 s, the time of a restart of the service."""
FIRST_PAUSE_S: Final = 0.1
LAST_PAUSE_S: Final = 2.0
LONGEST_RETRY_AFTER_S: Final = 60.0
"""Maximum seconds of ``Retry-After`` that the client waits; a budget covers a minute."""
_JITTER: Final = 0.25
"""Random share of a pause, so that clients do not all return at once."""
_ERRORS_FROM: Final = 400
_NO_SEGMENT: Final = ("", ".", "..")

_A = TypeVar("_A", bound=BaseModel)
Params = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One HTTP request.

    Attributes:
        method: GET, POST, PUT or DELETE.
        path: Path below the service's URL.
        params: Query parameters; a repeated parameter has several pairs.
        json: The body; None if there is no body.
        repeatable: Whether the request is idempotent.
        headers: Headers in addition to the token.
        content: The body as encoded JSON; None if there is no such body.
    """

    method: str
    path: str
    params: Params = ()
    json: Any = None
    repeatable: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None

    def arguments(self) -> dict[str, Any]:
        """The arguments of httpx's ``request`` and ``stream``.

        Raises:
            EntryTooLarge: If the body has more bytes than the service accepts.
        """
        content = self.content
        if content is None and self.json is not None:
            content = json.dumps(self.json, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        if content is not None and len(content) > MAX_BATCH_BYTES:
            raise EntryTooLarge(f"the body has {len(content)} of {MAX_BATCH_BYTES} bytes", hint="send less at once")
        typed = {} if content is None else {"Content-Type": "application/json"}
        return {
            "method": self.method,
            "url": self.path,
            "params": list(self.params),
            "content": content,
            "headers": {**self.headers, **typed},
        }

    def answer_of(self, body: bytes, model: type[_A]) -> _A:
        """The answer.

        Raises:
            CrewJournalError: If the body is not a ``model``.
        """
        try:
            return model.model_validate_json(body)
        except ValidationError:
            raise CrewJournalError(
                f"{self.method} {self.path} answered something other than {model.__name__}",
                hint="check that the service is a Crew Journal of the same version",
            ) from None


def request_of(operation: Operation[Any, Any], given: Mapping[str, Any]) -> HttpRequest:
    """An operation as a request.

    Args:
        operation: The operation.
        given: The fields, possibly with other names, which are ignored; fields with their default value are not sent.

    Raises:
        NotFound: If a path field has a value that cannot be part of a path, so that no such object exists.
    """
    fields = operation.request.model_fields
    path = operation.path
    for name in operation.path_fields:
        value = str(given[name])
        if value in _NO_SEGMENT:
            raise NotFound(f"nothing has the {name} {value!r}", hint="check the id", field=name)
        path = path.replace("{" + name + "}", quote(value, safe=""))
    rest = {
        name: format_ts(value) if isinstance(value, datetime) else value
        for name in fields
        if name not in operation.path_fields
        and (value := given[name]) is not UNCHANGED
        and (name in operation.request.NULLABLE if value is None else value != fields[name].default)
    }
    if operation.has_body:
        return HttpRequest(operation.method, path, json=rest, repeatable=operation.repeatable)
    return HttpRequest(operation.method, path, params_of(rest), repeatable=operation.repeatable)


def pause_before(attempt: int) -> float:
    """Seconds before attempt number ``attempt`` (from 1): doubling, capped, with jitter."""
    base = min(FIRST_PAUSE_S * 2.0 ** (attempt - 1), LAST_PAUSE_S)
    return base * (1 - _JITTER + 2 * _JITTER * random.random())  # spreads load; not used for secrets


def pause_after(error: Exception, attempt: int, request: HttpRequest) -> float:
    """Seconds to wait after attempt number ``attempt`` failed.

    Raises:
        Unavailable: If the request must not be resent. This includes errors after which waiting does not help or the
            service has already waited, because five times 30 s would look like a hang.
    """
    if isinstance(error, OverBudget) and request.repeatable and attempt < ATTEMPTS:
        return min(error.retry_after_s, LONGEST_RETRY_AFTER_S) + pause_before(1)
    waited = isinstance(error, BrokerUnavailable | ViewsBehind | ViewsDamaged)
    if request.repeatable and attempt < ATTEMPTS and not waited:
        return pause_before(attempt)
    if isinstance(error, Unavailable):
        raise error
    raise Unavailable(
        f"the service{_address_in(error)} does not answer: {type(error).__name__}",
        hint="check that a node runs there and that the URL is right; `crew-journal config show` says why this one",
    ) from None


def _address_in(error: Exception) -> str:
    """The address that an error of httpx names, for a message."""
    try:
        url = error.request.url  # type: ignore[attr-defined]  # httpx raises RuntimeError where there is none
        return f" at {url.scheme}://{url.netloc.decode()}"
    except (AttributeError, RuntimeError):
        return ""


def checked(status: int, body: bytes) -> bytes:
    """The body of an answer.

    Raises:
        CrewJournalError: If the status is an error.
    """
    if status < _ERRORS_FROM:
        return body
    try:
        problem = json.loads(body)
    except ValueError:
        problem = {}
    raise error_of(status, problem if isinstance(problem, dict) else {})


def object_of(body: bytes) -> dict[str, Any]:
    """Parse a JSON object that has no model."""
    return dict(json.loads(body))


def params_of(given: Mapping[str, object]) -> Params:
    """Keyword arguments as query parameters: None is left out, a sequence is repeated."""
    params: list[tuple[str, str]] = []
    for name, value in given.items():
        if value is None:
            continue
        values = value if isinstance(value, Iterable) and not isinstance(value, str) else [value]
        params.extend((name, str(value).lower() if isinstance(value, bool) else str(value)) for value in values)
    return params


def present(given: Mapping[str, object]) -> dict[str, object]:
    """Keyword arguments as the fields of a body: None is left out."""
    return {name: value for name, value in given.items() if value is not None}


def entry_path(entry_id: str) -> str:
    """The path of an entry's routes.

    The entry itself is at ``…/entry``, so that the route ``count`` does not hide the id ``count``.

    Raises:
        NotFound: If no entry can have that id, because it would change the path, like ``.`` and the empty id.
    """
    if not is_id(entry_id):
        raise NotFound(f"no entry {entry_id[:64]}", hint="an id has 1 to 64 of A-Z a-z 0-9 _ - and is not just _")
    return f"/v1/journal/{quote(entry_id, safe='')}"


# Streamed answers, without I/O: splits bytes into lines and lines into events, and decides when to reconnect.
#
# Invariant: a tail resumes after the last entry that it has yielded, so that no entry is missed or repeated after
# interruptions. Only LF ends a line, because JSON may contain other Unicode separators.


RESUME_FOR_S: Final = 60.0
"""Seconds for which a tail tries to reconnect."""
TAIL_SILENCE_S: Final = 45.0
"""Seconds without a byte after which a tail counts as broken; heartbeats come every 15 s."""


class Lines:
    """Splits received bytes into complete lines without LF."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The lines that ``piece`` completes."""
        self._rest += piece
        *whole, rest = self._rest.split(b"\n")
        self._rest = rest
        yield from (bytes(line) for line in whole)


class Tail:
    """One tail over any number of connections.

    Args:
        given: Filters and workspace.
        after: Resume after this sequence; None for the newest.
        on_gap: Called when more entries were missed than the service replays.
    """

    def __init__(
        self, given: Mapping[str, object], after: int | None, on_gap: Callable[[TailGap], None] | None
    ) -> None:
        self._params = params_of(given)
        self._last = after
        self._on_gap = on_gap
        self._attempt = 0
        self._broken_since: float | None = None
        self._shown = False
        self._begin()

    def _begin(self) -> None:
        self._lines = Lines()
        self._event = ""
        self._data: list[bytes] = []

    def request(self) -> HttpRequest:
        """The request of the next connection."""
        self._begin()
        headers = {"Accept": "text/event-stream"}
        if self._last is not None:
            headers["Last-Event-ID"] = str(self._last)
        return HttpRequest("GET", "/v1/journal/stream", self._params, headers=headers)

    def feed(self, piece: bytes) -> Iterator[EntryRecord]:
        """The entries that ``piece`` completes."""
        self._attempt, self._broken_since, self._shown = 0, None, True
        for line in self._lines.feed(piece):
            if line:
                self._field(line)
                continue
            event, data = self._event or "message", b"\n".join(self._data)
            self._event, self._data = "", []
            if event == "entry":
                entry = EntryRecord.model_validate_json(data)
                self._last = entry.seq
                yield entry
            elif event == "gap" and self._on_gap is not None:
                self._on_gap(TailGap.model_validate_json(data))

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._event = value.decode("utf-8", errors="replace")
        elif name == b"data":
            self._data.append(value)

    def pause_after(self, error: Exception) -> float:
        """``pause`` after a connection that failed.

        Raises:
            TooManyTails: If the tail was refused at its first connection; a broken tail waits until its old connection
                is counted no more.
            Unavailable: As in ``pause``.
        """
        if isinstance(error, TooManyTails) and not self._shown:
            raise error
        return self.pause(error.message if isinstance(error, Unavailable) else type(error).__name__)

    def pause(self, reason: str) -> float:
        """Seconds until the next connection, after a connection ended or broke.

        Raises:
            Unavailable: If the tail has been interrupted for too long.
        """
        now = time.monotonic()
        self._broken_since = self._broken_since or now
        if now - self._broken_since > RESUME_FOR_S:
            raise Unavailable(
                f"the live tail was interrupted and could not be resumed: {reason}",
                hint=f"resume after sequence {self._last}",
            )
        self._attempt += 1
        return pause_before(self._attempt)


def record_of(line: bytes) -> dict[str, Any]:
    """Parse one line of a long operation.

    Raises:
        CrewJournalError: If the line reports a failure.
    """
    record = json.loads(line)
    if not isinstance(record, dict):
        raise CrewJournalError("the service answered a line that is not a JSON object")
    if isinstance(problem := record.get("error"), dict):
        raise error_of(int(problem.get("status", 500)), problem)
    return record


# Encodes entries as the JSON of requests.
#
# Invariant: an entry gets its id before it is first sent, so that a retried append counts once; values that JSON
# cannot represent are refused with the field's name; an iterable of any length is split into requests of accepted
# size.


Entry = JournalEntry | Mapping[str, Any]
"""An entry to append: the model, or its fields (at least ``entry_type`` and ``summary``)."""
_FIX: Final = "use JSON values (text, finite numbers, true, false, null, lists, objects with text keys) or a datetime"
_PLACE: Final = re.compile(r"\bentries\[(\d+)\]")
_UNFIT: Final = (TypeError, ValueError, RecursionError)


def encoded(entry: Entry, prefix: str = "") -> bytes:
    """One entry as JSON, with an id.

    Args:
        entry: The entry; a datetime in it is written as ISO 8601.
        prefix: Put before each field's name in errors (``entries[3].``).

    Raises:
        InvalidEntry: If a value cannot be represented in JSON; names every such field.
    """
    try:
        return _json(_fields(entry))
    except _UNFIT:
        raise InvalidEntry(tuple(_unfit(entry, prefix))) from None


def encoded_batch(entries: Iterable[Entry]) -> list[bytes]:
    """The entries of one request.

    Raises:
        InvalidEntry: As in ``encoded``; names entries by their index.
    """
    return [encoded(entry, f"entries[{place}].") for place, entry in enumerate(entries)]


def body_of(records: Sequence[bytes]) -> bytes:
    """The body of a request for a list of entries."""
    return b"[%b]" % b",".join(records)


def checked_size(batch: int) -> int:
    """Return ``batch`` if it is an allowed number of entries per request.

    Raises:
        InvalidQuery: If it is not allowed.
    """
    if not 1 <= batch <= MAX_BATCH:
        raise InvalidQuery(f"a batch of {batch} entries", hint=f"use 1 to {MAX_BATCH:,}", field="batch")
    return batch


def in_batches(entries: Iterable[Entry], batch: int) -> Iterator[list[bytes]]:
    """Group entries lazily into requests of at most ``batch`` entries and about ``REQUEST_BYTES`` bytes each.

    Raises:
        InvalidEntry: As in ``encoded``; an entry is named by its index among all entries.
    """
    records: list[bytes] = []
    size = 0
    for place, entry in enumerate(entries):
        record = encoded(entry, f"entries[{place}].")
        if records and (len(records) == batch or size + len(record) > REQUEST_BYTES):
            yield records
            records, size = [], 0
        records.append(record)
        size += len(record)
    if records:
        yield records


@contextmanager
def places_from(first: int) -> Iterator[None]:
    """Change entry indices in errors from positions in the request to positions among all entries.

    Args:
        first: Index of the request's first entry among all entries, from 0.
    """

    def among_all(text: str) -> str:
        return _PLACE.sub(lambda match: f"entries[{first + int(match[1])}]", text)

    try:
        yield
    except CrewJournalError as error:
        error.message, error.hint = among_all(error.message), among_all(error.hint)
        error.field = error.field and among_all(error.field)
        if isinstance(error, InvalidEntry):
            error.problems = tuple(
                FieldProblem(among_all(problem.field), among_all(problem.problem), problem.fix)
                for problem in error.problems
            )
        raise


def _fields(entry: Entry) -> dict[str, Any]:
    if isinstance(entry, JournalEntry):  # an answer of `get` has fields that an entry must not have
        record = {name: value for name, value in entry.to_record().items() if name in JournalEntry.model_fields}
    else:
        record = dict(entry)
    for name in (
        "seq",
        "live_priority",
        "standing",
    ):  # removed, so that an entry that was read can be appended to another journal
        record.pop(name, None)
    if not record.get("id"):
        record["id"] = mint_entry_id()
    return record


def _json(value: object) -> bytes:
    return _encoder.encode(value).encode()


def _text_of(value: object) -> str:
    if isinstance(value, datetime):  # also without an offset: the service reports the missing offset
        return value.isoformat()
    raise _NoJson(type(value).__name__)


_encoder: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_text_of)
"""Created once, because creating it costs as much as encoding a small entry."""


def _unfit(entry: Entry, prefix: str) -> Iterator[FieldProblem]:
    try:
        fields: dict[Any, Any] = _fields(entry)
    except _UNFIT:
        yield FieldProblem(f"{prefix}entry", f"is a {type(entry).__name__}, not a mapping of fields", "give its fields")
        return
    for name, value in fields.items():
        try:
            _json({name: value})
        except _UNFIT as error:
            shown = name if isinstance(name, str) and name.isascii() and name.isprintable() else "entry"
            yield FieldProblem(f"{prefix}{shown}", _said(error), _FIX)


def _said(error: Exception) -> str:
    if isinstance(error, _NoJson):
        return f"holds a {error}, which JSON cannot represent"
    if isinstance(error, UnicodeEncodeError):  # its message quotes the text
        return "holds half of a surrogate pair, which UTF-8 cannot represent"
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    if isinstance(error, TypeError):
        return "has a key that is not text"
    if "Circular" in str(error):
        return "holds itself"
    return "holds a number that is not finite, or far too large"


class _NoJson(TypeError):
    """A value is not JSON; the message is the name of its type."""

"""Encodes entries as the JSON of requests.

Invariant: an entry gets its id before it is first sent, so that a retried append counts once; values that JSON cannot
represent are refused with the field's name; an iterable of any length is split into requests of accepted size.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from ...schemas.core.entry import JournalEntry
from ...schemas.core.errors import CrewJournalError, FieldProblem, InvalidEntry, InvalidQuery
from ...schemas.core.ids import mint_entry_id
from ...schemas.core.limits import MAX_BATCH, REQUEST_BYTES

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

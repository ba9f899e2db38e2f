"""Names and dates of the knowledge graph: ids of entities, and when a fact holds.

Invariant: pure. Two names that differ only in case or blanks give the same id; punctuation counts (``O'Brien`` is not
``OBrien``). Intervals include both ends.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from datetime import UTC, date, datetime
from typing import Final, NamedTuple

from ..core.timestamps import DAY_MS, to_ms

GENERAL_TYPE: Final = "entity"
"""Type of an entity until a fact sets a different type."""
MAX_ENTITIES: Final = 5_000
MAX_FACTS: Final = 50_000
"""Maximum number of entities and facts of a workspace (seed 5)."""
_ID_CHARS: Final = 32
_HASH_DIGITS: Final = 8
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}\Z", re.ASCII)
_TIME: Final = re.compile(r"(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})(Z|\+00:00)\Z", re.ASCII)
SECOND_MS: Final = 1_000
DATE_FIX: Final = "write a date such as 2026-11-21 or a UTC time such as 2026-11-21T09:30:00Z"


class Span(NamedTuple):
    """The first and the last second that a date or time names, in milliseconds since the epoch."""

    first_ms: int
    last_ms: int


def normal_name(name: str) -> str:
    """The form of a name for comparison: NFC, lower case, single blanks."""
    return " ".join(unicodedata.normalize("NFC", name).lower().split())


def entity_id(name: str) -> str:
    """The id of an entity: ``e_``, 32 characters of the normal name, and 8 hex digits of its SHA-256."""
    normal = normal_name(name)
    digest = hashlib.sha256(normal.encode()).hexdigest()[:_HASH_DIGITS]
    return f"e_{normal.replace(' ', '_')[:_ID_CHARS]}_{digest}"


def normal_date(text: str) -> str:
    """A date, or a UTC time to the second, in canonical form: ``2026-11-21`` or ``2026-11-21T09:30:00Z``.

    Raises:
        ValueError: If the text is partial, has no offset or another one, has fractions of a second, or names no
            existing time.
    """
    span_of(text)
    return text if _DATE.match(text) else text[:19] + "Z"


def span_of(text: str) -> Span:
    """The interval of a date or time: a date covers its whole day, a time its second.

    Raises:
        ValueError: As ``normal_date``.
    """
    try:
        if _DATE.match(text):
            day = date.fromisoformat(text)
            first = to_ms(datetime(day.year, day.month, day.day, tzinfo=UTC))
            return Span(first, first + DAY_MS - SECOND_MS)
        if match := _TIME.match(text):
            moment = to_ms(datetime.fromisoformat(match[1]).replace(tzinfo=UTC))
            return Span(moment, moment)
    except ValueError:
        raise ValueError("the date does not exist") from None
    raise ValueError("neither a full date nor a UTC time to the second")


def second_of(ms: int) -> str:
    """The UTC second of a time in milliseconds since the epoch, such as ``2026-11-21T09:30:00Z``."""
    return datetime.fromtimestamp(ms // SECOND_MS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def before(text: str) -> str:
    """The day before a date, or the second before a time."""
    span = span_of(text)
    return second_of(span.first_ms - SECOND_MS)[: len(text)]


def check_interval(valid_from: str | None, valid_to: str | None) -> None:
    """Check that an end is not before its start; equal is allowed.

    Raises:
        ValueError: If it is.
    """
    if valid_from is not None and valid_to is not None and span_of(valid_to).last_ms < span_of(valid_from).first_ms:
        raise ValueError(f"the end {valid_to} is before the start {valid_from}")

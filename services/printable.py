"""Untrusted text without characters that control a terminal or page.

Invariant: text of an agent reaches a terminal or a page only through :func:`safe`, so it cannot clear the screen, reverse
the text after it or hide itself.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from ..schemas.core.errors import InvalidQuery
from ..schemas.core.timestamps import format_ts, parse_ts

JOINERS: Final = "\u200c\u200d"
"""Not printable by Unicode, but Persian and the emoji of families are unreadable without them."""


def safe(text: object, keep: str = "") -> str:
    r"""``text`` with every character that could act on a terminal or a page shown as its escape.

    Control characters (ANSI escapes begin with one), bidirectional overrides, line separators and other invisible
    characters become ``\x1b``, ``\u202e`` and so on; printable characters and those in ``keep`` stay.
    """
    plain = str(text)
    if plain.isprintable():
        return plain
    kept = JOINERS + keep
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode("ascii") for c in plain)


# Times as a person writes them: ``2h`` ago, ``yesterday``, a day without a time, or RFC 3339.


UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SPAN: Final = re.compile(r"([1-9][0-9]{0,5})([smhdw])\Z")
_DAYS_AGO: Final = {"today": 0, "yesterday": 1}
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}\Z")
_BARE: Final = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2})?\Z")


def span_of(text: str) -> timedelta | None:
    """The time span in a text such as ``90s``, ``30m``, ``2h``, ``7d`` or ``4w``; None if it is not a time span.

    Raises:
        OverflowError: If it is too long.
    """
    match = _SPAN.match(text)
    return None if match is None else timedelta(**{UNITS[match[2]]: int(match[1])})


def moment_of(text: str, field: str, now: datetime | None = None, *, end: bool = False) -> str:
    """An RFC 3339 time.

    Args:
        text: ``90s``, ``30m``, ``2h``, ``7d`` or ``4w`` ago; ``today`` or ``yesterday``; a day, or a day and a time without
            an offset, in UTC.
        field: The name of the field or option, for the error.
        now: The time that "ago" counts from; the clock if absent.
        end: Whether a day means its last millisecond, not its first.

    Raises:
        InvalidQuery: If the text has none of these forms, or the time does not exist.
    """
    if (days := _DAYS_AGO.get(text)) is not None:
        text = ((now or datetime.now(UTC)) - timedelta(days=days)).date().isoformat()
    try:
        if (ago := span_of(text)) is not None:
            return format_ts((now or datetime.now(UTC)) - ago)
        if _DAY.match(text) or _BARE.match(text):
            moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
            last = timedelta(days=1, milliseconds=-1) if end and _DAY.match(text) else timedelta()
            return format_ts(moment + last)
        parse_ts(text)
    except (ValueError, OverflowError):
        raise InvalidQuery(
            f"{field}: not a time",
            hint="write it like 2h (ago), yesterday, 2026-11-21 or 2026-11-21T09:30:00Z",
            field=field,
        ) from None
    return text


def past_moment_of(text: str, now: datetime | None = None) -> str:
    """A past moment of the journal as an operation takes it: a day means its end, at the latest now.

    A sequence is returned unchanged. So is a text that is not a time: the operation refuses it and names the forms.
    """
    if text.isdecimal():
        return text
    latest = now or datetime.now(UTC)
    try:
        moment = moment_of(text, "as_of", latest, end=True)
    except InvalidQuery:
        return text
    return moment if parse_ts(moment) <= latest else format_ts(latest)

"""Times as a person writes them: ``2h`` ago, a day without a time, or RFC 3339."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from ..schemas.timestamps import format_ts

UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGO: Final = re.compile(r"([1-9][0-9]{0,5})([smhdw])\Z")
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}\Z")
_BARE: Final = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2})?\Z")


def moment_of(text: str, now: datetime | None = None, *, end: bool = False) -> str:
    """An RFC 3339 time; what is none of the three forms is returned as it is, for the service to judge.

    Args:
        text: ``90s``, ``30m``, ``2h``, ``7d`` or ``4w`` ago; a day, or a day and a time without an offset, in UTC.
        now: The time that "ago" counts from; the clock if absent.
        end: Whether a day means its last millisecond, not its first.
    """
    try:
        if (ago := _AGO.match(text)) is not None:
            return format_ts((now or datetime.now(UTC)) - timedelta(**{UNITS[ago[2]]: int(ago[1])}))
        if _DAY.match(text) or _BARE.match(text):
            moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
            last = timedelta(days=1, milliseconds=-1) if end and _DAY.match(text) else timedelta()
            return format_ts(moment + last)
    except (ValueError, OverflowError):
        pass
    return text

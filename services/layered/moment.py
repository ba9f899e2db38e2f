"""The time for which a request is answered."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from ...schemas.errors import InvalidQuery
from ...schemas.timestamps import parse_ts, to_ms


class Moments:
    """Reads the times that requests name.

    Args:
        clock: The time now, UTC.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock

    def ms(self, named: str | None) -> int:
        """A named time, or now, in milliseconds since the epoch.

        Raises:
            InvalidQuery: If it is not a time.
        """
        try:
            return to_ms(self._clock() if named is None else parse_ts(named))
        except ValueError as error:
            hint = "now: send a time like 2026-11-21T09:30:00Z"
            raise InvalidQuery(f"now is not a time: {error}", hint=hint, field="now") from None

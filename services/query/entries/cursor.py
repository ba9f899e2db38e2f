"""The keyset cursor ``<ts-ms>|<id>``: where a page of entries ended.

Invariant: a cursor names a place, not a row: the page after it holds what is strictly older, also if the row is gone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ....schemas.errors import InvalidQuery
from ....schemas.ids import is_id

_CURSOR: Final = re.compile(r"(-?[0-9]{1,15})\|([A-Za-z0-9_-]{1,64})\Z", re.ASCII)
"""Fifteen digits hold every millisecond of the years 1 to 9999."""


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """The last entry of a page; greater is newer.

    Attributes:
        ts_ms: Its time, milliseconds since the epoch.
        entry_id: Its id, which breaks ties.
    """

    ts_ms: int
    entry_id: str

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """The cursor that ``str`` wrote.

        Raises:
            InvalidQuery: If it is malformed.
        """
        match = _CURSOR.match(text)
        if match is None or not is_id(match[2]):
            raise InvalidQuery(
                "cursor is malformed", hint="pass next_cursor of the previous page unchanged", field="cursor"
            )
        return cls(int(match[1]), match[2])

    def __str__(self) -> str:
        return f"{self.ts_ms}|{self.entry_id}"

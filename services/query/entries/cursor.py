"""The keyset cursor ``<ts-ms>|<id>`` of a page of entries.

Invariant: a cursor is a position, not a row: the next page holds strictly older entries even if the row no longer
exists.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ....schemas.errors import InvalidQuery
from ....schemas.ids import is_id

_CURSOR: Final = re.compile(r"(-?[0-9]{1,15})\|([A-Za-z0-9_-]{1,64})\Z", re.ASCII)
"""Digits that suffice for milliseconds of the years 1 to 9999."""


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """Position of the last entry of a page; greater is newer."""

    ts_ms: int
    entry_id: str

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Parse the text of a cursor.

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

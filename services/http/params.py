"""The query parameters other than filters, and how each is parsed.

Invariant: an unknown or repeated parameter is refused, because ignoring a misspelt filter would return
entries that the caller wanted to exclude.
"""

from __future__ import annotations

import re
from typing import Final

from starlette.requests import Request

from ...schemas.errors import InvalidQuery
from ..query.entries.filters import FILTER_PARAMETERS
from ..query.entries.queries import MAX_SEQ

_WHOLE: Final = re.compile(r"[0-9]{1,19}\Z", re.ASCII)


class Params:
    """The query parameters of one request.

    Args:
        request: The request.
        known: Every name the route knows.

    Raises:
        InvalidQuery: If a name is unknown, a parameter other than a filter is repeated, or the workspace is empty.
    """

    def __init__(self, request: Request, known: frozenset[str]) -> None:
        self.items = request.query_params.multi_items()
        self._known = known
        self._values: dict[str, str] = {}
        for name, value in self.items:
            if name not in known:
                raise InvalidQuery(
                    f"no parameter {name[:64]!r} here", hint=f"known are {', '.join(sorted(known))}", field=name[:64]
                )
            if name in FILTER_PARAMETERS:
                continue  # the filters have rules of their own about repeating
            if name in self._values:
                raise InvalidQuery(f"{name} is given more than once", hint="give it once", field=name)
            self._values[name] = value.strip()
        if self._values.get("workspace_id") == "":
            raise InvalidQuery("workspace_id is empty", hint="name a workspace, or leave it out", field="workspace_id")

    def text(self, name: str) -> str | None:
        """Its text; None if absent or blank.

        Raises:
            LookupError: If the route does not know the name, or it is a filter, which ``parse_filters`` reads from
                ``items``: the route would ignore what was asked for.
        """
        if name not in self._known or name in FILTER_PARAMETERS:
            raise LookupError(f"{name} is not a parameter of this route beside its filters")
        return self._values.get(name) or None

    def whole(self, name: str) -> int | None:
        """A whole number from 0; None if absent or blank.

        Raises:
            InvalidQuery: If it is not such a number.
        """
        text = self.text(name)
        return None if text is None else whole_number(name, text)

    def truth(self, name: str, *, absent: bool) -> bool:
        """``true`` or ``false``; ``absent`` if absent or blank.

        Raises:
            InvalidQuery: If it is neither.
        """
        text = self.text(name)
        return absent if text is None else _truth(name, text)


def _truth(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise InvalidQuery(f"{name} must be true or false", hint=f"{name}: send true or false", field=name)
    return text == "true"


def whole_number(name: str, text: str) -> int:
    """A whole number of 0 to 2^63 - 1.

    Raises:
        InvalidQuery: If it is none.
    """
    if not _WHOLE.match(text) or int(text) > MAX_SEQ:
        raise InvalidQuery(f"{name} must be a non-negative integer", hint=f"{name}: use digits only", field=name)
    return int(text)

"""What is imported into the palace: drawers, facts and tunnels, and an account of what is left out.

Invariant: the same store gives the same drawers with the same ids, so a repeated import files nothing twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from ....schemas.events.drawers import CONTENT_CHARS
from ....schemas.operations.facts import KgAddRequest
from ....schemas.operations.palace_filing import ImportedDrawer
from ....schemas.timestamps import format_ts


@dataclass(slots=True)
class PalaceSource:
    """A store that was read.

    Attributes:
        name: What drawers from it are marked with.
        drawers: By id, as the operation ``import_drawers`` takes them.
        facts: As the operation ``kg_add`` takes them.
        tunnels: As the operation ``create_tunnel`` takes them.
        left_out: Reason → number of drawers, facts and tunnels that are left out.
    """

    name: str
    drawers: dict[str, ImportedDrawer] = field(default_factory=dict)
    facts: list[KgAddRequest] = field(default_factory=list)
    tunnels: list[dict[str, str]] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def leave_out(self, _inside: str, reason: str) -> None:
        """Count a file that is left out."""
        self.left_out[reason] += 1

    def add(self, drawer: Mapping[str, Any]) -> None:
        """Take in a drawer, in parts if it is longer than a drawer may be."""
        for number, part in enumerate(_parts(drawer["content"]), 1):
            name = drawer["drawer_id"] if number == 1 else f"{drawer['drawer_id']}_part{number}"
            try:
                self.drawers[name] = ImportedDrawer.model_validate({**drawer, "drawer_id": name, "content": part})
            except ValidationError as error:
                self.left_out[_reason("drawers", error)] += 1

    def add_fact(self, fact: Mapping[str, Any]) -> None:
        """Take in a fact."""
        try:
            self.facts.append(KgAddRequest.model_validate(fact))
        except ValidationError as error:
            self.left_out[_reason("facts", error)] += 1


def utc(text: object) -> str | None:
    """A time as RFC 3339 in UTC; one without a zone is in the zone of this machine. None if it cannot be read."""
    try:
        return format_ts(datetime.fromisoformat(str(text)).astimezone(UTC))
    except (ValueError, OverflowError, OSError):  # the last two of times that no clock has
        return None


def _parts(text: str) -> Iterator[str]:
    """The text in parts that a drawer can hold, cut at the last line break that fits."""
    while len(text) > CONTENT_CHARS:
        at = text.rfind("\n", 1, CONTENT_CHARS) + 1 or CONTENT_CHARS
        yield text[:at]
        text = text[at:]
    yield text


def _reason(what: str, error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{what}: {'.'.join(map(str, first['loc']))} {first['msg'].removeprefix('Value error, ')}"

"""The topic ``pins`` of a crew: its entries that operators pinned, one line each.

Invariant: pure; a line names its entry, and text that the scanners block is a notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..timestamps import format_ms
from .assembler import notice_of
from .documents import finding_in
from .render import one_line

PINS_TOPIC: Final = "pins"
"""Key of the topic that is rendered unless a text is written under it."""
MAX_PINS: Final = 500
"""Maximum number of pinned entries in the text; the newest count."""


@dataclass(frozen=True, slots=True)
class PinnedEntry:
    """An entry with the priority ``pin`` or ``permanent``."""

    entry_id: str
    ts_ms: int
    summary: str


def pins_text(pins: Sequence[PinnedEntry], *, whole: bool) -> str:
    """The text, in the order given.

    Args:
        pins: The entries.
        whole: Whether text that the scanners block is shown; else a notice replaces it.
    """
    return "".join(f"- {format_ms(pin.ts_ms)[:10]} {_safe(pin, whole)} ({pin.entry_id})\n" for pin in pins)


def _safe(pin: PinnedEntry, whole: bool) -> str:
    finding = None if whole else finding_in(pin.summary)
    return one_line(pin.summary) if finding is None else notice_of(pin.entry_id, finding)

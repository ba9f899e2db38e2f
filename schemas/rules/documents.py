"""The effect of a write on a document's text.

Invariant: the text of a document is a function of its writes in stream order; a non-empty text ends in a line break
after an append, and an appended piece begins on a line of its own. The findings of the scanners also depend on these
writes alone, not on their batches.
"""

from __future__ import annotations

import hashlib
from typing import Final

from .injection import scan

SCAN_OVERLAP: Final = 2_000
"""Characters that are scanned twice: together with the text before them and with the text after them."""
SCAN_WINDOW: Final = 2 * SCAN_OVERLAP
"""Characters of an appended text that are scanned at once, at 1 to 3 µs each."""


def joint(text: str, piece: str) -> str:
    """The text that an append adds to ``text``: the piece on lines of its own."""
    return ("\n" if text and not text.endswith("\n") else "") + piece + ("" if piece.endswith("\n") else "\n")


def sha256_of(text: str) -> str:
    """The SHA-256 of a text in UTF-8, 64 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def finding_in(text: str) -> str | None:
    """The finding of the scanners that blocks a text, as ``category/pattern``; None if it may be shown."""
    finding = scan(text)
    return None if finding is None else f"{finding.category}/{finding.pattern}"


def appended_finding(text: str, clean: int) -> tuple[int, str | None]:
    """The finding of the scanners that blocks a text after an append.

    It is scanned in windows of ``SCAN_WINDOW`` characters, one every ``SCAN_OVERLAP``, the last of which may be
    shorter. Findings in a complete window are final, because appends do not change it.

    Args:
        text: The whole text.
        clean: Where the first window begins: what an earlier call returned, or ``SCAN_OVERLAP`` before the end of the
            text that was replaced and in which ``finding_in`` found nothing, at least 0.

    Returns:
        Where the first window begins that is not complete or not clean, and what is found in it.
    """
    while (finding := finding_in(text[clean : clean + SCAN_WINDOW])) is None and clean + SCAN_WINDOW <= len(text):
        clean += SCAN_OVERLAP
    return clean, finding

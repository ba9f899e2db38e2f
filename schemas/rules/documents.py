"""What a write makes of a document's text.

Invariant: the text of a document is a function of its writes in stream order; a non-empty text ends in a line break after an
append, and an appended piece begins on a line of its own.
"""

from __future__ import annotations

import hashlib


def joint(text: str, piece: str) -> str:
    """What an append adds to ``text``: the piece on lines of its own."""
    return ("\n" if text and not text.endswith("\n") else "") + piece + ("" if piece.endswith("\n") else "\n")


def sha256_of(text: str) -> str:
    """The SHA-256 of a text in UTF-8, 64 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()

"""Untrusted text without characters that control a terminal or page.

Invariant: text of an agent reaches a terminal or a page only through :func:`safe`, so it cannot clear the screen, reverse
the text after it or hide itself.
"""

from __future__ import annotations

from typing import Final

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

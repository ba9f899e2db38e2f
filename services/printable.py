"""Untrusted text without characters that act on what shows it.

Invariant: text that came from an agent reaches a terminal or a page only through :func:`safe`; a memory must not be
able to clear the screen, reverse what comes after it or hide.
"""

from __future__ import annotations

from typing import Final

JOINERS: Final = "\u200c\u200d"
"""Not printable by Unicode, but Persian and the emoji of families are unreadable without them."""


def safe(text: object, keep: str = "") -> str:
    r"""``text`` with every character that could act on a terminal or a page shown as its escape.

    Control characters (ANSI escapes begin with one), bidirectional overrides, line separators and other invisible
    characters become ``\x1b``, ``\u202e`` and so on; what can be printed and what is in ``keep`` is left as it is.
    """
    plain = str(text)
    if plain.isprintable():
        return plain
    kept = JOINERS + keep
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode("ascii") for c in plain)

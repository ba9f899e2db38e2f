"""Finds credentials in a text by the formats of their issuers, and replaces them.

Why: what is stored is recalled into prompts, exported and backed up. Every way into the journal asks this module
(``services/journal/intake/secrets``), and learning asks it before it repeats a text.

Invariants: pure, and linear in the text. Only formats count that are seldom anything else: the prefix of an issuer, a
frame, or a value with letters and digits that is assigned to the name of a password or key. A password in plain words is
not found. A text without credentials is returned as it is, and a replaced text has none. The formats are data:
``secrets.toml``.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import resources
from typing import Final

VERSION: Final = 2
"""Raised with every change of a format."""

REDACTED: Final = "[redacted:"
NOTICE: Final = REDACTED + " {kind}]"
"""Replaces a credential."""
LEAST_BYTES: Final = 15
"""Length of the shortest credential but passwords: ``xoxb-`` and ten characters."""
_PIECES: Final = bytes(
    ord(" ")
    if chr(code) in " \t\r\n\"'`,;:<>{}()[]|\\"
    else ord("0")
    if chr(code).isupper() or chr(code).isdigit()
    else code
    for code in range(128)
) + bytes(range(128, 256))
"""What separates pieces becomes a blank, a digit or capital letter becomes ``0``."""
_SEPARATED: Final = bytes(code if _PIECES[code] != ord(" ") else ord(" ") for code in range(256))
_BREAK: Final = re.compile(r"\n\s*")


@dataclass(frozen=True, slots=True)
class Secret:
    """A credential in a text: its kind, such as ``aws key``, and the positions of its first character and of its end."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True)  # no slots: the compiled pattern is kept
class Format:
    """One kind of credentials.

    Attributes:
        kind: Its name in notices.
        needs: The pattern is only tried on a text with one of these, in small letters.
        source: The regular expression; a group ``secret`` is the credential, if there is one.
    """

    kind: str
    needs: tuple[str, ...]
    source: str

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The source, compiled at its first use."""
        return re.compile(self.source)


def may_hold_secrets(text: bytes, but: str = "") -> bool:
    """Whether a text, in UTF-8 or as JSON, has to be searched; 4 µs for 600 bytes, where a search takes 30.

    It is searched if it has a need of any format, and either speaks of a password or has a piece without blanks of
    ``LEAST_BYTES`` with a digit or capital letter, as every other credential is.

    Args:
        text: The text.
        but: An id in it that is not searched.
    """
    lowered = text.lower()
    if (b"pass" in lowered and (b"passw" in lowered or b"passphrase" in lowered)) or (b"@" in text and b"://" in text):
        return True
    if not _has_long_piece((text.replace(but.encode(), b"") if but else text).translate(_PIECES)):
        return False
    names, beginnings = _needs()
    if any(need in lowered for need in names):
        return True
    long = b" ".join(piece for piece in lowered.translate(_SEPARATED).split() if len(piece) >= LEAST_BYTES)
    return any(need in long for need in beginnings)


def _has_long_piece(text: bytes) -> bool:
    """Whether a text that ``_PIECES`` has translated has a piece of ``LEAST_BYTES`` with a ``0``."""
    at = text.find(b"0")
    while at >= 0:
        end = text.find(b" ", at)
        if end < 0:
            end = len(text)
        if end - text.rfind(b" ", 0, at) > LEAST_BYTES:
            return True
        at = text.find(b"0", end)
    return False


def find_secrets(text: str) -> list[Secret]:
    """The credentials in ``text`` in their order; of overlapping ones the first, with the end of the last."""
    lowered = text.lower()
    matches: list[Secret] = []
    for format_ in formats():
        if any(need in lowered for need in format_.needs):
            group = "secret" if "secret" in format_.pattern.groupindex else 0
            matches += [Secret(format_.kind, *match.span(group)) for match in format_.pattern.finditer(text)]
    secrets: list[Secret] = []
    for secret in sorted(matches, key=lambda match: match.start):  # stable: at one place the earlier format
        if secrets and secret.start < secrets[-1].end:
            secrets[-1] = replace(secrets[-1], end=max(secrets[-1].end, secret.end))
        else:
            secrets.append(secret)
    return secrets


def kinds_of(secrets: list[Secret]) -> tuple[str, ...]:
    """The kinds of credentials, each once, in order."""
    return tuple(dict.fromkeys(secret.kind for secret in secrets))


def without(text: str, secrets: list[Secret]) -> str:
    """``text`` with a notice in the place of each of the credentials that ``find_secrets`` found in it."""
    pieces, last = [], 0
    for secret in secrets:
        pieces += [text[last : secret.start], NOTICE.format(kind=secret.kind)]
        last = secret.end
    return "".join([*pieces, text[last:]])


@cache
def formats() -> tuple[Format, ...]:
    """The formats of ``secrets.toml`` in their order."""
    data = tomllib.loads(resources.files("crew_journal.schemas.rules").joinpath("secrets.toml").read_text("utf-8"))
    return tuple(
        Format(format_["kind"], tuple(format_["needs"]), _BREAK.sub("", format_["pattern"]))
        for format_ in data["format"]
    )


@cache
def _needs() -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """The needs that precede a credential, and those that are its beginning; without those that hold another one."""
    needs: tuple[set[str], set[str]] = (set(), set())
    for format_ in formats():
        needs["secret" not in format_.pattern.groupindex].update(format_.needs)
    all_needs = needs[0] | needs[1]
    names, beginnings = (
        tuple(sorted(need.encode() for need in group if not any(other in need for other in all_needs - {need})))
        for group in needs
    )
    return names, beginnings

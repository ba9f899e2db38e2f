"""Decoded readings of a text, for the disguises that ``injection_rules`` recognise.

Invariants: pure; no decoder makes a text longer than it is, and a decoded text is decoded at most once more, so time
stays linear. A decoding that does not give text is dropped, so no rule matches noise.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
from collections.abc import Callable, Iterator
from typing import Final

from .lookalikes import folded, plain, unleeted, unspaced

VERSION: Final = 1

DEPTH: Final = 2
"""Decodings on top of each other that are followed: base64 within base64."""
RUNS: Final = 256
"""Maximum number of encoded runs of one text that are decoded."""
TEXT_SHARE: Final = 0.85
"""Share of printable characters from which on decoded bytes count as text."""

_BASE64: Final = re.compile(
    r"[A-Za-z0-9+/_-]{16,}={0,2}(?:\s{1,3}[A-Za-z0-9+/_-]{16,}={0,2})*(?:\s{1,3}[A-Za-z0-9+/_-]{2,15}={0,2}(?!\S))?"
)
_BASE64_TOKEN: Final = re.compile(r"[A-Za-z0-9+/_-]{24,}")
_HEX: Final = re.compile(r"(?:(?:0x|\\x)?[0-9a-fA-F]{2}[ :,]?){12,}")
_HEX_DIGITS: Final = re.compile(r"0x|\\x|[ :,]")
_HEX_BYTES: Final = b"0123456789abcdefABCDEF"
_AS_HEX: Final = bytes.maketrans(_HEX_BYTES, b"0" * len(_HEX_BYTES))
_HEX_RUN: Final = b"0" * 24
"""Minimum number of digits of a run that ``_HEX`` matches. The search for them takes a tenth of the time of the pattern."""
_PERCENT: Final = re.compile(r"(?:%[0-9a-fA-F]{2})+")
_PERCENT_MIN: Final = 4
_ENTITY: Final = re.compile(r"&#?\w{1,12};")
_ESCAPE: Final = re.compile(r"\\u\{?([0-9a-fA-F]{4,6})\}?|\\x([0-9a-fA-F]{2})")
_ROT13: Final = str.maketrans("abcdefghijklmnopqrstuvwxyz", "nopqrstuvwxyzabcdefghijklm")
CIPHERS: Final[dict[str, Callable[[str], str]]] = {
    "reversed": lambda text: text[::-1],
    "rot13": lambda text: text.translate(_ROT13),
}
"""Disguises that exchange or move single characters; applied twice, each gives the text back."""


def decodings(text: str, depth: int = DEPTH) -> Iterator[tuple[str, str]]:
    """Every decoding of ``text`` that gives text: its encoding (``base64``, ``base64_hex`` …) and the decoded text."""
    for kind, decoded in _once(text):
        yield kind, decoded
        if depth > 1:
            for inner, more in decodings(decoded, depth - 1):
                yield f"{kind}_{inner}", more


def disguises(text: str) -> Iterator[tuple[str, str]]:
    """Other readings of a folded text: letters closed up, digits as letters, backwards, rotated by 13."""
    if (closed := unspaced(text)) is not None:
        yield "spaced", closed
    if (letters := unleeted(text)) is not None:
        yield "leet", letters
    for kind, cipher in CIPHERS.items():
        yield kind, cipher(text)


def _once(text: str) -> Iterator[tuple[str, str]]:
    yield from _base64(text)
    yield from _hex(text)
    if text.count("%") >= _PERCENT_MIN and (decoded := _PERCENT.sub(_unquoted, text)) != text:
        yield "percent", decoded
    if "&" in text and (decoded := _ENTITY.sub(lambda match: html.unescape(match[0]), text)) != text:
        yield "entity", decoded
    if "\\" in text and (decoded := _ESCAPE.sub(_unescaped, text)) != text:
        yield "escape", decoded


def _base64(text: str) -> Iterator[tuple[str, str]]:
    for count, match in enumerate(_BASE64.finditer(text)):
        if count == RUNS:
            return
        joined = "".join(match[0].split())
        if (decoded := _from_base64(joined)) is not None:
            yield "base64", decoded
        elif joined != match[0]:
            for token in _BASE64_TOKEN.findall(match[0]):
                if (decoded := _from_base64(token)) is not None:
                    yield "base64", decoded


def _from_base64(run: str) -> str | None:
    standard = run.replace("=", "").replace("-", "+").replace("_", "/")
    if len(standard) % 4 == 1:
        standard = standard[:-1]
    try:
        raw = base64.b64decode(standard + "=" * (-len(standard) % 4))
    except (binascii.Error, ValueError):
        return None
    return _as_text(raw)


def _hex(text: str) -> Iterator[tuple[str, str]]:
    if _HEX_RUN not in text.encode("utf-8", "replace").translate(_AS_HEX, b" :,x\\"):
        return
    for count, match in enumerate(_HEX.finditer(text)):
        if count == RUNS:
            return
        digits = _HEX_DIGITS.sub("", match[0])
        decoded = _as_text(bytes.fromhex(digits[: len(digits) // 2 * 2]))
        if decoded is not None:
            yield "hex", decoded


def _as_text(raw: bytes) -> str | None:
    for encoding in ("utf-8", "utf-16-le") if len(raw) > 1 and raw[1] == 0 else ("utf-8",):
        decoded = raw.decode(encoding, "ignore")
        if decoded and sum(map(_reads, decoded)) >= TEXT_SHARE * max(len(decoded), len(raw) // 4):
            return decoded
    return None


def _reads(character: str) -> bool:
    return character.isprintable() or character in "\n\r\t"


def _unquoted(match: re.Match[str]) -> str:
    return bytes.fromhex(match[0].replace("%", "")).decode("utf-8", "replace")


def _unescaped(match: re.Match[str]) -> str:
    code = int(match[1] or match[2], 16)
    return chr(code) if code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF else match[0]


def readings(text: str) -> Iterator[tuple[str, str]]:
    """Every folded reading of ``text``: suffix for the pattern's name (empty for the plain one) and the reading."""
    latin = folded(text)
    yield "", latin
    if not text.isascii() and (unlatinised := plain(text)) != latin:
        yield "", unlatinised  # letters of other scripts as they are
    for kind, reading in disguises(latin):
        yield f"_{kind}", reading
    for kind, decoded in decodings(text):
        yield f"_{kind}", folded(decoded)

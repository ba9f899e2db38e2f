"""Finds credentials in a text by the formats of their issuers, and replaces them.

Stored text is recalled into prompts, exported and backed up. Therefore every write to the journal is checked here
(``services/journal/intake/secrets``), and so is every text that learning repeats.

Invariants: pure, and linear in the text. Only formats with few false positives count: the prefix of an issuer, a frame,
or a value with letters and digits that is assigned to the name of a password or key. A password in plain words is not
found. A text without credentials is returned unchanged, and the result of a replacement contains no credentials. The
formats are data: ``secrets.toml``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import resources
from typing import Final

from pydantic_core import SchemaValidator, core_schema

VERSION: Final = 2
"""Raised with every change of a format."""

REDACTED: Final = "[redacted:"
NOTICE: Final = REDACTED + " {kind}]"
"""Replaces a credential."""
LEAST_BYTES: Final = 15
"""Minimum length of a credential other than a password: ``xoxb-`` and ten characters."""
_IN_PIECE: Final = r"[^ \t\r\n\"'`,;:<>{}()\[\]|\\]"
"""Matches a character of a piece; a credential consists of such characters only."""
_LONG_PIECE: Final = "|".join(
    f"{_IN_PIECE}{{{before}}}[0-9A-Z]{_IN_PIECE}{{{LEAST_BYTES - 1 - before}}}" for before in range(LEAST_BYTES)
)
"""Matches ``LEAST_BYTES`` characters of a piece, at least one of them a digit or capital letter."""
_URL: Final = "://"
_BY_NAME: Final = rf"passw|passphrase|{_URL}(?s:.)*@"
"""Credentials that may be short."""
_ASSIGNED: Final = (
    r"(?:secret|key|token)[\"'\]\\]{0,4}\s{0,3}(?:=>|:=|=|:)\s{0,3}[\"'`\\]{0,2}[^\s\"'`,;<>{}()\[\]|\\]{16}"
)
"""A value with colons in it, which divide it into pieces that may each be short, assigned to the name of a key."""
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
        kind: Name of the credential in notices.
        needs: The pattern is only tried if the lower-cased text contains one of these strings.
        source: The regular expression; if it has a group ``secret``, that group is the credential, else the whole
            match.
    """

    kind: str
    needs: tuple[str, ...]
    source: str

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The source, compiled at its first use."""
        return re.compile(self.source)


def may_hold_secrets(text: bytes, but: str = "") -> bool:
    """Whether a text, in UTF-8 or as JSON, has to be searched; takes 0.6 µs for 600 bytes, a search 30 µs.

    A text is searched if it has a need of any format and also mentions a password or has a piece of ``LEAST_BYTES``
    without blanks and with a digit or capital letter, which all other credentials have.

    Args:
        text: The text.
        but: An id in the text that is not searched.
    """
    named, suspicious = _hints()
    if not named(text.lower() if text.isascii() else text.decode().lower()):
        return False
    return suspicious(text.decode().replace(but, "") if but else text)


def find_secrets(text: str) -> list[Secret]:
    """The credentials in ``text``, in order; overlapping credentials are merged under the kind of the first."""
    lowered = text.lower()
    matches: list[Secret] = []
    for format_ in formats():
        if any(need in lowered for need in format_.needs):
            group = "secret" if "secret" in format_.pattern.groupindex else 0
            matches += [Secret(format_.kind, *match.span(group)) for match in format_.pattern.finditer(text)]
    secrets: list[Secret] = []
    for secret in sorted(
        matches, key=lambda match: match.start
    ):  # stable: of two matches at one position, the earlier format comes first
        if secrets and secret.start < secrets[-1].end:
            secrets[-1] = replace(secrets[-1], end=max(secrets[-1].end, secret.end))
        else:
            secrets.append(secret)
    return secrets


def kinds_of(secrets: list[Secret]) -> tuple[str, ...]:
    """The kinds of credentials, each once, in order."""
    return tuple(dict.fromkeys(secret.kind for secret in secrets))


def without(text: str, secrets: list[Secret]) -> str:
    """``text`` with a notice in place of each credential that ``find_secrets`` found."""
    pieces, last = [], 0
    for secret in secrets:
        pieces += [text[last : secret.start], NOTICE.format(kind=secret.kind)]
        last = secret.end
    return "".join([*pieces, text[last:]])


@cache
def formats() -> tuple[Format, ...]:
    """The formats of ``secrets.toml`` in their order."""
    data = tomllib.loads(resources.files(__package__).joinpath("secrets.toml").read_text("utf-8"))
    return tuple(
        Format(format_["kind"], tuple(format_["needs"]), _BREAK.sub("", format_["pattern"]))
        for format_ in data["format"]
    )


@cache
def _hints() -> tuple[Callable[[str | bytes], bool], Callable[[str | bytes], bool]]:
    """Whether a text in small letters has a need, and whether a text has a short or a long credential's form.

    A need that is a credential's prefix must begin a long piece. Each check is one pass of a regular-expression engine
    without backtracking.
    """
    begins: dict[str, bool] = {}
    for one in formats():
        for need in one.needs:
            begins[need] = begins.get(need, True) and "secret" not in one.pattern.groupindex and " " not in need
    del begins[_URL]
    needs = [
        f"{re.escape(need)}{_IN_PIECE}{{{max(0, LEAST_BYTES - len(need))}}}" if alone else re.escape(need)
        for need, alone in begins.items()
    ]
    return _searched("|".join([*needs, _URL])), _searched(f"(?i:{_BY_NAME}|{_ASSIGNED})|{_LONG_PIECE}")


def _searched(pattern: str) -> Callable[[str | bytes], bool]:
    return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")).isinstance_python

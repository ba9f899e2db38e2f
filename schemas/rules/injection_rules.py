"""Our own rules against injected instructions: each names a technique, and blocks or only records.

The two scanners of contract §17 recognise a few English wordings. These rules recognise techniques: what an attack on
a reader must say, in any wording. Each is a pattern over folded text (``lookalikes``: case, marks, look-alikes and
invisible characters are gone), so a disguise does not need a rule of its own; what is encoded is decoded first
(``injection_encoded``). The rules are data: ``injection.toml``.

A rule has strong phrases, of which one is enough for a verdict, and weak ones, which people say to each other at work as
well ("this is your new rule: never deploy on Fridays"): two different rules must find one each, close together.

Invariants: pure; every gap in a pattern is bounded, so time is linear in the text. ``needs`` save time and
restrain: a pattern is only tried on a text that contains one of them. A rule is
justified by the technique it names and the phrasing around it, never by a row of a data set. docs/rendering.md says
which share of other attacks the rules find.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Final, Literal

from .injection_encoded import CIPHERS

VERSION: Final = 4
"""Raised with every change of a rule."""

_LINE_BREAK: Final = re.compile(r"\n\s*")
_NAME: Final = re.compile(r"\{([A-Z]+(?:_[A-Z]+)*)\}")


@dataclass(frozen=True)  # no slots: the compiled pattern is kept
class TechniqueRule:
    """One technique.

    Attributes:
        name: The pattern's name.
        technique: The family: override, hijack, persona, address, extraction, exfiltration, steering, forgery,
            obfuscation.
        severity: Whether a strong phrase blocks or is only recorded.
        needs: The rule fires only on a text with one of these.
        source: The regular expression of the strong phrases, over folded text; None if it has none.
        weak_source: That of the weak phrases; None if it has none.
    """

    name: str
    technique: str
    severity: Literal["block", "record"]
    needs: tuple[str, ...]
    source: str | None
    weak_source: str | None

    @cached_property
    def pattern(self) -> re.Pattern[str] | None:
        """The source, compiled at its first use: all of them take 60 ms."""
        return None if self.source is None else re.compile(self.source)

    @cached_property
    def weak(self) -> re.Pattern[str] | None:
        """The source of the weak phrases, compiled at its first use."""
        return None if self.weak_source is None else re.compile(self.weak_source)


_BEGINNING: Final = 3
"""Characters of a need by which it is looked up. Looking for all needs one by one takes twice as long."""

_THROUGH_CIPHERS: Final = frozenset({"override", "extraction"})
"""Techniques that are also searched in a text that is read backwards or rotated."""


def beginnings_in(reading: str) -> frozenset[str]:
    """The pieces of a folded reading that may be the beginning of a need."""
    return frozenset(map("".join, zip(reading, reading[1:], reading[2:], strict=False)))


def candidates(reading: str, present: frozenset[str], cipher: str = "") -> list[int]:
    """The positions of the rules of which a folded reading holds a need, ascending.

    Args:
        reading: The text that is searched.
        present: ``beginnings_in`` of it; with ``cipher``, of the text of which the cipher makes it.
        cipher: One of ``CIPHERS``; only the rules that look through ciphers then count.
    """
    by_beginning, beginnings, short = _needs(cipher)
    places = {at for beginning in beginnings & present for need, at in by_beginning[beginning] if need in reading}
    places.update(at for need, at in short if need in reading)
    return sorted(places)


@cache
def _needs(cipher: str) -> tuple[dict[str, list[tuple[str, int]]], frozenset[str], list[tuple[str, int]]]:
    """The needs with the positions of their rules, by their enciphered beginning; the beginnings; and shorter needs."""
    by_beginning: dict[str, list[tuple[str, int]]] = {}
    short: list[tuple[str, int]] = []
    for at, rule in enumerate(technique_rules()):
        if cipher and rule.technique not in _THROUGH_CIPHERS:
            continue
        for need in rule.needs:
            beginning = CIPHERS[cipher](need[:_BEGINNING]) if cipher else need[:_BEGINNING]
            into = short if len(need) < _BEGINNING else by_beginning.setdefault(beginning, [])
            into.append((need, at))
    return by_beginning, frozenset(by_beginning), short


@cache
def technique_rules() -> tuple[TechniqueRule, ...]:
    """The rules of ``injection.toml`` in their order."""
    data = tomllib.loads(resources.files("crew_journal.schemas.rules").joinpath("injection.toml").read_text("utf-8"))
    vocabulary: dict[str, str] = data["vocabulary"]

    def expanded(pattern: str) -> str:
        return _NAME.sub(lambda match: expanded(vocabulary[match[1]]), _LINE_BREAK.sub("", pattern))

    def source(rule: dict[str, str], key: str) -> str | None:
        return expanded(rule[key]) if key in rule else None

    return tuple(
        TechniqueRule(
            rule["name"],
            rule["technique"],
            rule.get("severity", "block"),
            tuple(rule["needs"]),
            source(rule, "pattern"),
            source(rule, "weak"),
        )
        for rule in data["rule"]
    )

"""All scanners over one text: the two of contract §17, whose results differ, and our own rules.

Invariant: a text that one of them blocks is blocked; the finding names scanner, category and pattern, and never
quotes the text. Detection is an addition, not the protection: escaping and the nonce (``rules/render``) keep a text
inside its block.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from . import (
    injection_encoded,
    injection_memory,
    injection_recall,
    injection_rules,
    lookalikes,
)
from .injection_encoded import CIPHERS, readings
from .injection_memory import scan_memory
from .injection_recall import guard_recall
from .injection_rules import beginnings_in, candidates, technique_rules

VERSION: Final = (
    f"{injection_memory.VERSION}.{injection_recall.VERSION}.{injection_rules.VERSION}"
    f".{injection_encoded.VERSION}.{lookalikes.VERSION}"
)
"""Versions of memory scanner, recall guard, techniques, decoders and look-alikes."""
REVISION: Final = sum(map(int, VERSION.split(".")))
"""Rises with each version of a scanner: views that keep findings count it in their versions."""

Scanner = Literal["memory", "recall", "technique"]

SPACED_LETTERS: Final = 12
"""Minimum number of single letters in a row that count as a disguise and not as an abbreviation."""
WEAK_WITHIN: Final = 1_000
"""Maximum distance, in characters, between the beginnings of two weak phrases that count together. Instructions to play
a role put their second phrase up to 800 characters later; two chance phrases of a long document are mostly further apart."""
_NEXT_POINT: Final = re.compile(r"\n[ \t]*(?:\n|[-*+#>|\u2022]|\d{1,3}[.)])")
"""Where a paragraph, a heading or a point of a list begins: rules of a team in a list are separate sentences."""
_LETTER_SPACED: Final = re.compile(rf"(?<!\S)[^\W\d_](?: [^\W\d_]){{{SPACED_LETTERS - 1},}}(?!\S)")
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class InjectionFinding:
    """One rule that fired.

    Attributes:
        scanner: The scanner: ``memory`` (§17a), ``recall`` (§17b), ``technique`` (ours).
        category: Its category or technique.
        pattern: Its name, with a suffix for the disguise it was found under.
        blocks: Whether the text must not be shown.
    """

    scanner: Scanner
    category: str
    pattern: str
    blocks: bool


def scan(text: str) -> InjectionFinding | None:
    """The first finding that blocks; None if the text may be shown."""
    return next((finding for finding in findings(text) if finding.blocks), None)


def findings(text: str) -> Iterator[InjectionFinding]:
    """Every finding: the memory scanner's first, the recall guard's, each of our rules once."""
    if not text:
        return
    if (first := scan_memory(text)) is not None:
        yield InjectionFinding("memory", first.category, first.pattern, True)
    for guarded in guard_recall(text):
        yield InjectionFinding("recall", "recall_guard", guarded.pattern, guarded.severity == "high")
    yield from techniques(text)


def techniques(text: str) -> Iterator[InjectionFinding]:
    """The findings of our own rules, each rule once, with the least disguised reading that matches.

    A strong phrase blocks by itself; weak phrases block if those of two rules are close together, and are otherwise
    only recorded.
    """
    if _is_letter_spaced(text):
        yield InjectionFinding("technique", "obfuscation", "letter_spacing", True)
    rules, seen, plainest = technique_rules(), set[int](), frozenset[str]()
    alone: dict[int, InjectionFinding] = {}
    for suffix, reading in readings(text):
        cipher = suffix[1:] if suffix[1:] in CIPHERS else ""
        present = plainest if cipher else beginnings_in(reading)
        plainest = plainest or present
        weak: list[_Phrase] = []
        for at in candidates(reading, present, cipher):
            rule = rules[at]
            if at not in seen and rule.pattern is not None and rule.pattern.search(reading) is not None:
                seen.add(at)
                yield InjectionFinding("technique", rule.technique, rule.name + suffix, rule.severity == "block")
            if rule.weak is not None:
                weak += (_Phrase(match.start(), match.end(), at) for match in rule.weak.finditer(reading))
        together = _together(weak, reading)
        for at in dict.fromkeys(phrase.rule for phrase in weak):
            finding = InjectionFinding("technique", rules[at].technique, rules[at].name + suffix, at in together)
            if at not in seen and finding.blocks:
                seen.add(at)
                yield finding
            alone.setdefault(at, finding)
    yield from (finding for at, finding in alone.items() if at not in seen)


@dataclass(frozen=True, slots=True, order=True)
class _Phrase:
    """A weak phrase in a reading, and the position of its rule."""

    start: int
    end: int
    rule: int


def _together(weak: list[_Phrase], reading: str) -> set[int]:
    """The rules with a phrase near one of another rule: in the same point, not overlapping, at most ``WEAK_WITHIN`` away."""
    if len(weak) < 2:
        return set()
    rules, last = set[int](), dict[int, _Phrase]()
    ends = iter([match.start() + 1 for match in _NEXT_POINT.finditer(reading)] + [len(reading) + 1])
    end = next(ends)
    for phrase in sorted(weak):
        while phrase.end > end:  # patterns may begin with the line break before their phrase
            end, last = next(ends), {}
        for earlier in last.values():
            near = phrase.start - earlier.start <= WEAK_WITHIN
            if near and earlier.rule != phrase.rule and earlier.end <= phrase.start:
                rules |= {earlier.rule, phrase.rule}
        if (earlier_ := last.get(phrase.rule)) is None or earlier_.end <= phrase.start:
            last[phrase.rule] = phrase
    return rules


def _is_letter_spaced(text: str) -> bool:
    for match in _LETTER_SPACED.finditer(text):
        letters = match[0].replace(" ", "").lower()
        if letters not in _ALPHABET and len(set(letters)) > 2:
            return True
    return False

"""Decides which predicates have one object per subject at a time, so that a newer fact ends the older, and which contradict.

A predicate is single-valued if it is declared (``single_values.toml``: "lives in", "made of"), or names an attribute
("price", "has_deadline"), or if the existing facts suggest it: at least ``LEAST_SUBJECTS`` subjects have the predicate,
and ``LEAST_SHARE`` of them have one object. Predicates that are declared to have several ("uses", "knows") are never
single-valued.

Invariant: pure; a changed rule or list is a new ``VERSION``.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import combinations
from typing import Any, Final, Literal

from ..text.analyzer import fold
from ..text.sentences import TokenKind, sentences_of

VERSION: Final = 1
LEAST_SUBJECTS: Final = 5
"""Minimum number of subjects whose facts show that a predicate is single-valued; with fewer subjects, one object each
may be chance.
"""
LEAST_SHARE: Final = 0.9
"""Minimum share of these subjects with one object. Some have two, because a changed fact may not be ended yet."""
_WORD: Final = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")


@dataclass(frozen=True, slots=True)
class _Lists:
    auxiliaries: frozenset[str]
    single: frozenset[str]
    attributes: frozenset[str]
    many: frozenset[str]


def is_single(predicate: str, objects: Mapping[str, int] | None = None) -> bool:
    """Whether a predicate has one object per subject at a time.

    Args:
        predicate: As asserted: ``has_price``, ``made of``.
        objects: For each subject that has it, the number of different objects now; None without data.
    """
    declared = declared_single(predicate)
    if declared is not None:
        return declared
    if objects is None or len(objects) < LEAST_SUBJECTS:
        return False
    return sum(count == 1 for count in objects.values()) >= LEAST_SHARE * len(objects)


def declared_single(predicate: str) -> bool | None:
    """Whether the lists declare a predicate single-valued; None if the lists do not contain it."""
    lists = _lists()
    words = [word.replace("'", "’") for word in _WORD.findall(fold(predicate.replace("_", " ")))]
    phrase = " ".join(words)
    if phrase in lists.many:
        return False
    while words and words[0] in lists.auxiliaries:
        del words[0]
    rest = " ".join(words)
    if rest in lists.single:
        return True
    if rest in lists.many:
        return False
    return True if words and words[-1] in lists.attributes else None


def counted(facts: Iterable[tuple[str, str]]) -> dict[str, int]:
    """The number of different objects of each subject.

    Args:
        facts: Subject and object of the facts of one predicate that have no end.
    """
    return dict(Counter(subject for subject, _ in set(facts)))


@cache
def _lists() -> _Lists:
    data: dict[str, Any] = tomllib.loads(resources.files(__package__).joinpath("single_values.toml").read_text("utf-8"))
    return _Lists(
        frozenset(fold(data["auxiliaries"]).split()),
        frozenset(map(fold, data["single"])),
        frozenset(fold(data["attributes"]).split()),
        frozenset(map(fold, data["many"])),
    )


# Finds facts that contradict each other (contract of the layered memory, part B).


_AUXILIARIES: Final = frozenset({"do", "does", "did"})
MOST_PAIRS: Final = 1_000
"""Maximum number of conflicts of one subject; n values of a single-valued predicate have n² / 2 pairs."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A fact in the form in which it is compared.

    Attributes:
        fact_id: Its id.
        namespace: Facts of different namespaces never conflict.
        subject: The entity that it is about.
        predicate: Subject and predicate form the key.
        value: The value of the key.
        text: The fact in words.
        single_valued: Whether the key has one value at a time.
    """

    fact_id: str
    namespace: str
    subject: str
    predicate: str
    value: str
    text: str
    single_valued: bool = False


@dataclass(frozen=True, slots=True, order=True)
class Conflict:
    """Two facts that contradict each other."""

    namespace: str
    subject: str
    predicate: str
    first: str
    second: str
    kind: Literal["values", "polarity"]


def conflicts(claims: Iterable[Claim]) -> list[Conflict]:
    """The conflicts among facts that all hold now."""
    by_subject: defaultdict[tuple[str, str], list[Claim]] = defaultdict(list)
    for claim in claims:
        by_subject[claim.namespace, claim.subject].append(claim)
    found_conflicts = [conflict for group in by_subject.values() if len(group) > 1 for conflict in _of_subject(group)]
    return sorted(found_conflicts)


def _of_subject(claims: Sequence[Claim]) -> list[Conflict]:
    by_pair: dict[tuple[str, str], Conflict] = {}
    for claim, rival, kind in (*_values(claims), *_polarity(claims)):
        first, second = sorted((claim, rival), key=lambda claim: claim.fact_id)
        pair = first.fact_id, second.fact_id
        by_pair.setdefault(pair, Conflict(first.namespace, first.subject, first.predicate, *pair, kind))
        if len(by_pair) == MOST_PAIRS:
            break
    return list(by_pair.values())


_FoundPair = tuple[Claim, Claim, Literal["values", "polarity"]]


def _values(claims: Sequence[Claim]) -> Iterator[_FoundPair]:
    by_key: defaultdict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        by_key[claim.predicate].append(claim)
    for group in by_key.values():
        if len(group) > 1 and any(claim.single_valued for claim in group):
            ordered = sorted(group, key=lambda claim: claim.fact_id)
            for first, second in combinations(ordered, 2):
                if first.value != second.value:
                    yield first, second, "values"


def _polarity(claims: Sequence[Claim]) -> Iterator[_FoundPair]:
    by_words: defaultdict[tuple[str, ...], list[tuple[Claim, bool]]] = defaultdict(list)
    for claim in sorted(claims, key=lambda claim: claim.fact_id):
        words, negated = _words_and_negation(claim.text)
        if words:
            by_words[words].append((claim, negated))
    for group in by_words.values():
        for (claim, negated), (rival, rival_negated) in combinations(group, 2):
            if negated != rival_negated:
                yield claim, rival, "polarity"


def _words_and_negation(text: str) -> tuple[tuple[str, ...], bool]:
    """The words of a text in order, without negations, and whether it negates."""
    tokens = [token for sentence in sentences_of(text) for token in sentence.tokens if token.shown not in _AUXILIARIES]
    negations = sum(token.kind is TokenKind.NEGATION for token in tokens)
    return tuple(token.key for token in tokens if token.kind is not TokenKind.NEGATION), negations % 2 == 1

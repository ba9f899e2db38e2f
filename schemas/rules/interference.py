"""Finds facts that contradict each other (contract of the layered memory, part B).

Two facts of one namespace about one subject that hold at the same time conflict if the predicate has one value at a
time (one of the facts says so) and their values differ, or if one negates the other in the same words.

Invariant: pure; each pair once, the smaller id first, in the order of namespace, key and ids. Nothing is deleted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Literal

from .contradiction_text import TokenKind, sentences_of

_AUXILIARIES: Final = frozenset({"do", "does", "did"})
MOST_PAIRS: Final = 1_000
"""Maximum number of conflicts of one subject; n values of a single-valued predicate have n² / 2 pairs."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A fact as it is compared.

    Attributes:
        fact_id: Its id.
        namespace: Facts of different ones never conflict.
        subject: The entity that it is about.
        predicate: With the subject the key.
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

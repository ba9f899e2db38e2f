"""Which predicates of the knowledge graph have one object per subject at a time, so that a newer fact ends the older one.

A predicate is single-valued if it is declared (``single_values.toml``: "lives in", "made of"), or names an attribute
("price", "has_deadline"), or if the facts say so: at least ``LEAST_SUBJECTS`` subjects have it, and ``LEAST_SHARE`` of them
with one object. Predicates that are declared to have several ("uses", "knows") are never single-valued.

Invariant: pure; a changed rule or list is a new ``VERSION``.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

from .text import fold

VERSION: Final = 1
LEAST_SUBJECTS: Final = 5
"""Subjects from which the facts themselves say that a predicate is single-valued: with fewer, one object each is likely by
chance."""
LEAST_SHARE: Final = 0.9
"""Share of them that have one object; a change that nothing ended yet leaves two."""
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
    """What the lists say; None if they do not name it."""
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

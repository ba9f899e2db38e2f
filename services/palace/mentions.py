"""The knowledge graph as an arm of the palace's search: from the entities that a query names to drawers.

weight of a drawer = sum over the named entities of ln(1 + facts / facts of the entity): an entity with many facts says
little.

Invariant: only facts that hold at the given time count; an alias counts as the entity that it means.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

from ...schemas.rules.text import STOP_WORDS, tokens_of
from ...schemas.views.facts import FACTS, KG_ENTITIES
from ..query.hot.arrow import values_of
from ..query.hot.rows import Rows

MOST_NAME_WORDS: Final = 6
"""Words of the longest name that is looked for in a query."""
MOST_FACTS: Final = 2_000
"""Facts of an entity that are read, the latest ones."""
_ENTITY: Final = ("entity_id", "name", "alias_of", "until_seq")
_FACT: Final = ("key", "subject_id", "object_id", "from_ms", "to_ms", "source_drawer_id", "until_seq")


class _Fact(NamedTuple):  # built in a third of the time of a frozen dataclass; there may be 50,000
    ends: tuple[str, str]
    from_ms: int | None
    to_ms: int | None
    drawer_id: str


class Mentions:
    """Which drawers the facts about an entity are from."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # entity → its words
        self._named: dict[str, set[str]] = {}  # words → entities
        self._means: dict[str, str] = {}  # alias → entity
        self._aliases: dict[str, set[str]] = {}
        self._facts: dict[int, _Fact] = {}
        self._about: dict[str, dict[int, None]] = {}

    def take(self, rows: Rows) -> None:
        """Take in entities and facts."""
        entities = rows.of(KG_ENTITIES, *_ENTITY)
        if entities is not None:
            for entity_id, name, alias_of, until in zip(
                *(values_of(entities, column) for column in _ENTITY), strict=True
            ):
                if until is None:
                    self._put_entity(entity_id, name, alias_of)
        facts = rows.of(FACTS, *_FACT)
        if facts is not None:
            for key, *fact, drawer_id, until in zip(*(values_of(facts, column) for column in _FACT), strict=True):
                if until is None and drawer_id is not None:
                    subject, object_, from_ms, to_ms = fact
                    self._put_fact(int(key), _Fact((subject, object_), from_ms, to_ms, drawer_id))

    def drawers(self, query: str, now_ms: int) -> dict[str, float]:
        """The drawers of facts about the entities that a query names, with their weights."""
        weights: dict[str, float] = {}
        for root in sorted(self._roots(query)):
            same = {root, *self._aliases.get(root, ())}
            about = dict.fromkeys(key for entity in sorted(same) for key in self._about.get(entity, ()))
            latest = list(about)[-MOST_FACTS:]
            weight = math.log1p(len(self._facts) / max(1, len(about)))
            for drawer_id in {fact.drawer_id for key in latest if _holds(fact := self._facts[key], now_ms)}:
                weights[drawer_id] = weights.get(drawer_id, 0.0) + weight
        return weights

    def _roots(self, query: str) -> set[str]:
        return {self._means.get(entity, entity) for words in _phrases(query) for entity in self._named.get(words, ())}

    def _put_entity(self, entity_id: str, name: str, alias_of: str | None) -> None:
        if (before := self._names.get(entity_id)) is not None:
            self._named[before].discard(entity_id)
        words = self._names[entity_id] = " ".join(tokens_of(name))
        self._named.setdefault(words, set()).add(entity_id)
        if (meant := self._means.pop(entity_id, None)) is not None:
            self._aliases[meant].discard(entity_id)
        if alias_of is not None:
            self._means[entity_id] = alias_of
            self._aliases.setdefault(alias_of, set()).add(entity_id)

    def _put_fact(self, key: int, fact: _Fact) -> None:
        self._facts[key] = fact
        for end in fact.ends:
            self._about.setdefault(end, {})[key] = None


def _phrases(query: str) -> Iterable[str]:
    words = tokens_of(query)
    for size in range(1, MOST_NAME_WORDS + 1):
        for at in range(len(words) - size + 1):
            if not STOP_WORDS.issuperset(words[at : at + size]):
                yield " ".join(words[at : at + size])


def _holds(fact: _Fact, now_ms: int) -> bool:
    return (fact.from_ms is None or fact.from_ms <= now_ms) and (fact.to_ms is None or fact.to_ms >= now_ms)

"""The hot index of the drawers of one workspace: words, vectors, where they are and how they rank.

Invariant: it holds the live drawers as of ``seq`` and the facts that lead to them: the same function takes in rows of the
views and rows of a commit.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ...schemas.core.ports import ViewReader
from ...schemas.documents.tables import CHUNK_VECTORS, CHUNK_VECTORS_PROJECTION
from ...schemas.facts.tables import FACTS, FACTS_PROJECTION, KG_ENTITIES
from ...schemas.models.tables import active_in, read_active_models
from ...schemas.palace.events import DrawerState
from ...schemas.palace.layers import drawer_author
from ...schemas.palace.rules import decayed
from ...schemas.palace.tables import DRAWER_UPKEEP, DRAWER_USES, DRAWERS, DRAWERS_PROJECTION
from ...schemas.text.analyzer import STOP_WORDS, tokens_of
from ..index.arrays import GrowableArray
from ..index.arrow import Found, Written, values_of
from ..index.rows import Commit, Rows, StoredRows
from ..index.texts import OwnerChunks, TextIndex
from ..index.vectors import NO_ROW

# The knowledge graph as an arm of the palace's search: from the entities that a query names to drawers.


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


NEEDED: Final = frozenset((DRAWERS_PROJECTION, CHUNK_VECTORS_PROJECTION, FACTS_PROJECTION))
"""Projections that must have taken part in a commit for an index to follow it."""
_COLUMNS: Final = (
    "key",
    "drawer_id",
    "entry_id",
    "wing",
    "room",
    "content",
    "memory_type",
    "importance",
    "state",
    "superseded_by",
    "added_by_agent",
    "source_file",
    "conversation",
    "filed_ms",
    "text_hash",
    "terms",
    "counts",
    "since_seq",
    "until_seq",
    "author_type",
    "author_name",
)
_USES: Final = ("entry_id", "access_count", "last_accessed_ms")
_UPKEEP: Final = ("key", "decays")


@dataclass(frozen=True, slots=True)
class HotDrawer:
    """A live drawer."""

    drawer_id: str
    entry_id: str
    wing: str
    room: str
    memory_type: str
    filed_importance: float
    added_by_agent: str
    source_file: str
    filed_ms: int
    decays: int
    author_type: str = ""
    author_name: str = ""

    @property
    def importance(self) -> float:
        """Its importance after its decays."""
        return decayed(self.filed_importance, self.decays)

    @property
    def author_text(self) -> str:
        """Who filed it, by the token."""
        return drawer_author(self.added_by_agent, self.author_type, self.author_name)


def _by_importance(drawer: HotDrawer) -> tuple[float, int, str]:
    return -drawer.importance, -drawer.filed_ms, drawer.drawer_id


class DrawerUses(NamedTuple):
    """How often a drawer was read, and when last."""

    reads: int = 0
    last_ms: int | None = None


UNREAD: Final = DrawerUses()


class DrawerIndex(TextIndex):
    """The drawers of a workspace; see ``TextIndex``."""

    def __init__(self, workspace_id: str, model: str | None, seq: int = 0) -> None:
        super().__init__(workspace_id, model, seq)
        self.texts = self.owners["drawers"] = OwnerChunks("drawers", model)
        self.mentions = Mentions()
        self.uses: dict[str, DrawerUses] = {}  # entry → how often and when it was read
        self.drawers: dict[int, HotDrawer] = {}
        self._decays: dict[int, int] = {}
        self._previous = GrowableArray(np.int32)
        self._last_of: dict[str, int] = {}  # conversation → slot of its last drawer
        self._key_of: dict[str, int] = {}
        self._important: dict[tuple[str | None, int], list[tuple[HotDrawer, str]]] = {}

    def at(self, slot: int) -> HotDrawer:
        """The drawer in a slot of ``texts``."""
        return self.drawers[self.texts.key_of(slot)]

    @property
    def previous(self) -> npt.NDArray[np.int32]:
        """(n,) int32 slot of the drawer that the same conversation filed before, -1 if there is none."""
        return self._previous.rows

    def slot_of(self, drawer_id: str) -> int | None:
        """Where the text of a live drawer is."""
        key = self._key_of.get(drawer_id)
        return None if key is None else self.texts.documents[key].slots[0]

    def important(self, wing: str | None, limit: int) -> list[tuple[HotDrawer, str]]:
        """The most important drawers with their texts, of equal ones the newest, then by id; kept until one changes.

        The authors take turns, so one of them does not displace the others by many drawers.
        """
        named = (wing, limit)
        if named not in self._important:
            by_author: defaultdict[str, list[HotDrawer]] = defaultdict(list)
            for drawer in self.drawers.values():
                if wing in (None, drawer.wing):
                    by_author[drawer.added_by_agent or drawer.author_name].append(drawer)
            turns = [enumerate(heapq.nsmallest(limit, own, key=_by_importance)) for own in by_author.values()]
            best = sorted(chain(*turns), key=lambda turn: (turn[0], _by_importance(turn[1])))[:limit]
            self._important[named] = [(drawer, self._text_of(drawer)) for _, drawer in best]
        return self._important[named]

    def _text_of(self, drawer: HotDrawer) -> str:
        return self.texts.text_of(self.texts.documents[self._key_of[drawer.drawer_id]].slots[0]).text

    def mask(self, wing: str | None, room: str | None, filed_by: str | None = None) -> npt.NDArray[np.bool_]:
        """(n,) bool: the live drawers of a place, those of one agent if it is named."""
        if wing is None and room is None and filed_by is None:
            return self.texts.live
        mask = np.zeros(len(self.texts), np.bool_)
        for key, drawer in self.drawers.items():
            in_place = wing in (None, drawer.wing) and room in (None, drawer.room)
            if in_place and filed_by in (None, drawer.added_by_agent):
                mask[self.texts.documents[key].slots[0]] = True
        return mask

    def take(self, rows: Rows) -> None:
        """Take in drawers, when they were read, vectors, and the knowledge graph."""
        uses = rows.of(DRAWER_USES, *_USES)
        if uses is not None:
            entry_ids, *values = (values_of(uses, name) for name in _USES)
            self.uses.update(zip(entry_ids, map(DrawerUses, *values), strict=True))
        self._take_upkeep(rows.of(DRAWER_UPKEEP, *_UPKEEP))
        drawers = rows.of(DRAWERS, *_COLUMNS, order="filed_ms, since_seq")
        if drawers is not None:
            self.taken += 1
            self._important.clear()
            columns = (values_of(drawers, name) for name in _COLUMNS)
            self._take_drawers([dict(zip(_COLUMNS, values, strict=True)) for values in zip(*columns, strict=True)])
        self.take_vectors(rows)
        self.mentions.take(rows)

    def remove(self, key: int) -> None:
        """Remove a drawer."""
        drawer = self.drawers.pop(key, None)
        if drawer is not None:
            self._important.clear()
            del self._key_of[drawer.drawer_id]
            self.texts.forget(key)

    def _take_upkeep(self, upkeep: Found | None) -> None:
        if upkeep is None:
            return
        self._important.clear()
        for key, decays in zip(*(values_of(upkeep, name) for name in _UPKEEP), strict=True):
            self._decays[key] = decays
            if key in self.drawers:
                self.drawers[key] = replace(self.drawers[key], decays=decays)

    def _take_drawers(self, rows: list[dict[str, Any]]) -> None:
        ended = {(row["key"], row["since_seq"]) for row in rows if row["until_seq"] is not None}
        opened = {row["key"]: row for row in rows if row["until_seq"] is None}
        new = []
        for key, row in opened.items():
            gone = (key, row["since_seq"]) in ended  # it was filed and removed by one commit
            if gone or row["superseded_by"] is not None or row["state"] == DrawerState.MERGED:
                self.remove(key)
                continue
            if key not in self.drawers:
                new.append(row)
            self.drawers[key] = HotDrawer(
                row["drawer_id"],
                row["entry_id"],
                row["wing"],
                row["room"],
                row["memory_type"],
                float(row["importance"]),
                row["added_by_agent"],
                row["source_file"],
                int(row["filed_ms"]),
                self._decays.get(key, 0),
                row["author_type"],
                row["author_name"],
            )
            self._key_of[row["drawer_id"]] = key
        if not new:
            return
        slots = self.texts.add(_as_chunks(new))
        self.seek_vectors(self.texts, slots)
        self._follow([row["conversation"] for row in new], slots.tolist())
        for row in new:
            self.texts.documents[row["key"]].updated_ms = int(row["filed_ms"])

    def _follow(self, conversations: list[str], slots: list[int]) -> None:
        previous = []
        for conversation, slot in zip(conversations, slots, strict=True):
            previous.append(self._last_of.get(conversation, NO_ROW) if conversation else NO_ROW)
            self._last_of[conversation] = slot
        self._previous.append(previous)


def load_drawers(views: ViewReader, workspace_id: str) -> DrawerIndex:
    """Read the index of one workspace; blocking, for a worker thread. See ``services/index/texts.load``."""
    seq = views.view_seq(*NEEDED)
    index = DrawerIndex(workspace_id, active_in(read_active_models(views), workspace_id), seq)
    index.take(StoredRows(views, workspace_id))
    return index


def extend_drawers(index: DrawerIndex, commit: Commit) -> bool:
    """Take in a commit; False if the index must be loaded again."""
    if not commit.projections >= NEEDED:
        return False
    if any(removed.get("model") == index.model for removed in commit.removed(CHUNK_VECTORS)):
        return False
    rows = commit.rows(index.workspace_id)
    written = rows.of(DRAWERS, "key", "until_seq")
    succeeded = {key for key, until in _keys(written) if until is None}
    for values in commit.removed(DRAWERS):
        if values["workspace_id"] == index.workspace_id and values["key"] not in succeeded:
            index.remove(values["key"])
    index.take(rows)
    index.seq = max(index.seq, commit.last_seq)
    return True


def _keys(hit: Found | None) -> Iterable[tuple[Any, Any]]:
    return () if hit is None else zip(values_of(hit, "key"), values_of(hit, "until_seq"), strict=True)


def _as_chunks(rows: list[dict[str, Any]]) -> Written:
    """Drawers as the one chunk of a document each."""
    count = len(rows)
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in ("key", "text_hash", "terms", "counts")}
    columns |= {"tier": [""] * count, "doc_key": [row["drawer_id"] for row in rows], "number": [0] * count}
    columns |= {"first_line": [1] * count, "breadcrumb": [""] * count, "text": [row["content"] for row in rows]}
    return Written(columns)

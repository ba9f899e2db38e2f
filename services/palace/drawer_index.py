"""The hot index of the drawers of one workspace: words, vectors, where they are and how they rank.

Invariant: it holds the live drawers as of ``seq`` and the facts that lead to them: the same function takes in rows of the
views and rows of a commit.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ...schemas.core.ports import ViewReader
from ...schemas.core.table import PRESENT, Table
from ...schemas.core.timestamps import format_ms
from ...schemas.documents.tables import CHUNK_VECTORS, CHUNK_VECTORS_PROJECTION
from ...schemas.facts.tables import FACTS, FACTS_PROJECTION, KG_ENTITIES
from ...schemas.palace.events import DrawerState
from ...schemas.palace.layers import WorkspaceIdentity, drawer_author
from ...schemas.palace.operations import DrawerAnswer
from ...schemas.palace.rules import PlaceCount, decayed
from ...schemas.palace.tables import (
    DRAWER_TEXTS,
    DRAWER_UPKEEP,
    DRAWER_USES,
    DRAWERS,
    DRAWERS_PROJECTION,
    IMPORTANCE_NOW,
    LIVE_DRAWER,
    PALACE_IDENTITIES,
    UPKEEP,
    DrawerRow,
)
from ...schemas.prompt.assembler import notice_of
from ...schemas.text.analyzer import STOP_WORDS, tokens_of
from ...schemas.text.injection import finding_in
from ..desk import Author, Caller
from ..index.arrays import GrowableArray
from ..index.arrow import Found, kept, values_of
from ..index.cache import HotCache, Indexes
from ..index.rows import Rows
from ..index.scoped import ScopedTexts
from ..index.shelf import TEXT_COLUMNS, Shelf, TextSlot
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

    def __len__(self) -> int:
        return len(self._facts)

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


DRAWER_BYTES: Final = 1_000
"""Memory of a drawer beside its text."""
MENTION_BYTES: Final = 600
"""Memory of a fact that leads to a drawer, its ends included."""


_COLUMNS: Final = (
    "key",
    "drawer_id",
    "entry_id",
    "wing",
    "room",
    "memory_type",
    "importance",
    "state",
    "superseded_by",
    "added_by_agent",
    "source_file",
    "conversation",
    "filed_ms",
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
    conversation: str = ""

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


class DrawerIndex(Shelf):
    """The drawers of a workspace; see ``Shelf``."""

    needed = frozenset((DRAWERS_PROJECTION, CHUNK_VECTORS_PROJECTION, FACTS_PROJECTION))
    tables = (
        DRAWERS, DRAWER_TEXTS, DRAWER_USES, DRAWER_UPKEEP, KG_ENTITIES, FACTS, CHUNK_VECTORS,
    )  # fmt: skip

    def __init__(self, workspace_id: str, model: str | None) -> None:
        super().__init__(workspace_id, model)
        self.mentions = Mentions()
        self.uses: dict[str, DrawerUses] = {}  # entry → how often and when it was read
        self.drawers: dict[int, HotDrawer] = {}
        self._decays: dict[int, int] = {}
        self._previous = GrowableArray(np.int32)
        self._last_of: dict[str, int] = {}  # conversation → slot of its last drawer
        self._key_of: dict[str, int] = {}
        self._important: dict[tuple[str | None, int], list[tuple[HotDrawer, str]]] = {}

    @property
    def nbytes(self) -> int:
        """Bytes held; those of dictionaries are estimated."""
        known = DRAWER_BYTES * len(self.drawers) + MENTION_BYTES * len(self.mentions)
        return super().nbytes + self._previous.nbytes + known

    def at(self, slot: int) -> HotDrawer:
        """The drawer in a slot."""
        return self.drawers[self.key_of(slot)]

    @property
    def previous(self) -> npt.NDArray[np.int32]:
        """(n,) int32 slot of the drawer that the same conversation filed before, -1 if there is none."""
        return self._previous.rows

    def slot_of(self, drawer_id: str) -> int | None:
        """Where the text of a live drawer is."""
        key = self._key_of.get(drawer_id)
        return None if key is None else self.slots[key][0]

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
            self._important[named] = [
                (drawer, self.text_of(self.slots[self._key_of[drawer.drawer_id]][0]).text) for _, drawer in best
            ]
        return self._important[named]

    def within(self, wing: str | None, room: str | None) -> ScopedTexts:
        """The live drawers of a wing and room; None for all."""
        if wing is None and room is None:
            return self.scoped()
        places = (place for place in self.places.names() if _is_in(place, wing, room))
        return self.scoped(places=tuple(places))

    def take(self, rows: Rows) -> None:
        """Take in drawers, when they were read, vectors, and the knowledge graph."""
        uses = rows.of(DRAWER_USES, *_USES)
        if uses is not None:
            entry_ids, *values = (values_of(uses, name) for name in _USES)
            self.uses.update(zip(entry_ids, map(DrawerUses, *values), strict=True))
        self._take_upkeep(rows.of(DRAWER_UPKEEP, *_UPKEEP))
        drawers = rows.of(DRAWERS, *_COLUMNS, order="filed_ms, since_seq")
        if drawers is not None:
            self._important.clear()
            columns = (values_of(drawers, name) for name in _COLUMNS)
            self._take_drawers([dict(zip(_COLUMNS, values, strict=True)) for values in zip(*columns, strict=True)])
        texts = rows.of(DRAWER_TEXTS, *TEXT_COLUMNS, order="ts_ms, since_seq")
        if texts is not None:
            self._take_texts(texts)
        self.take_vectors(rows)
        self.mentions.take(rows)

    def drop(self, table: Table[Any], values: Mapping[str, Any], rows: Rows) -> bool:
        """See ``Shelf``. A drawer that changes has its row removed and another one written; its text goes with it."""
        if table not in (DRAWERS, DRAWER_TEXTS):
            return False
        if table is DRAWERS and values["workspace_id"] == self.workspace_id:
            written = rows.of(DRAWERS, "key", "until_seq")
            if written is None or not any(
                key == values["key"] and until is None
                for key, until in zip(values_of(written, "key"), values_of(written, "until_seq"), strict=True)
            ):
                self._forget(values["key"])
        return True

    def _forget(self, key: int) -> None:
        drawer = self.drawers.pop(key, None)
        if drawer is not None:
            self._important.clear()
            del self._key_of[drawer.drawer_id]
            self.remove(key)

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
        for key, row in opened.items():
            gone = (key, row["since_seq"]) in ended  # it was filed and removed by one commit
            if gone or row["superseded_by"] is not None or row["state"] == DrawerState.MERGED:
                self._forget(key)
                continue
            self.put_item(key, ts_ms=int(row["filed_ms"]), place=place_of(row["wing"], row["room"]))
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
                row["conversation"],
            )
            self._key_of[row["drawer_id"]] = key

    def _take_texts(self, texts: Found) -> None:
        """Take in the texts of new drawers; that of a known one never changes."""
        new = np.array([key in self.drawers and not self.slots.get(key) for key in values_of(texts, "key")], bool)
        if not new.any():
            return
        slots = self.add(kept(texts, new))
        drawers = [self.at(slot) for slot in slots.tolist()]
        self.put_places(slots, [place_of(drawer.wing, drawer.room) for drawer in drawers])
        previous = []
        for drawer, slot in zip(drawers, slots.tolist(), strict=True):
            talk = drawer.conversation
            previous.append(self._last_of.get(talk, NO_ROW) if talk else NO_ROW)
            self._last_of[talk] = slot
        self._previous.append(previous)

    def time_of(self, key: int) -> int:
        """See ``Shelf``."""
        return self.drawers[key].filed_ms


def place_of(wing: str, room: str) -> str:
    """The place of a drawer on the shelf: ``<wing>/<room>``, with what may be in both quoted."""
    return f"{quote(wing)}/{quote(room)}"


def _is_in(place: str, wing: str | None, room: str | None) -> bool:
    own_wing, _, own_room = place.partition("/")
    return (wing is None or own_wing == quote(wing)) and (room is None or own_room == quote(room))


def quote(name: str) -> str:
    """A name of a wing or room without ``/``."""
    return name.replace("%", "%25").replace("/", "%2F")


def drawer_indexes(cache: HotCache) -> Indexes[DrawerIndex]:
    """The hot indexes of drawers."""
    return Indexes(cache, "drawers", partial(TextSlot[DrawerIndex], make=DrawerIndex))


# Reads drawers from the views.


_ROW_COLUMNS: Final = ", ".join(
    IMPORTANCE_NOW if name == "importance" else f"drawer.{name}" for name in DrawerRow._fields
)
_READ: Final = f"""SELECT {_ROW_COLUMNS}, coalesce(uses.access_count, 0), uses.last_accessed_ms,
        coalesce(entity_count, 0), coalesce(triple_count, 0), coalesce(rejected, 0)
    FROM {DRAWERS} AS drawer {UPKEEP} LEFT JOIN {DRAWER_USES} AS uses
        ON uses.workspace_id = drawer.workspace_id AND uses.entry_id = drawer.entry_id"""
_LATEST: Final = f"""{_READ} WHERE drawer.workspace_id = ? AND drawer.drawer_id = ?
    ORDER BY until_seq DESC NULLS FIRST LIMIT 1"""
_LATEST_OF: Final = f"""{_READ} WHERE drawer.workspace_id = ? AND list_contains(?::VARCHAR[], drawer.drawer_id)
    QUALIFY row_number() OVER (PARTITION BY drawer.drawer_id ORDER BY until_seq DESC NULLS FIRST) = 1"""
_PLACE: Final = f"""drawer.workspace_id = $ws AND {LIVE_DRAWER} AND ($wing IS NULL OR wing = $wing)
    AND ($room IS NULL OR room = $room) AND ($hall IS NULL OR hall = $hall)
    AND ($agent IS NULL OR added_by_agent = $agent) AND ($source IS NULL OR imported_from = $source)"""
_LISTED: Final = f"{_READ} WHERE {_PLACE} ORDER BY filed_ms DESC, drawer.entry_id DESC LIMIT $limit OFFSET $offset"
_COUNT: Final = f"SELECT count(*) FROM {DRAWERS} AS drawer WHERE {_PLACE}"
_ROOMS: Final = f"""SELECT wing, room, count(*) FROM {DRAWERS} AS drawer WHERE {_PLACE}
    GROUP BY wing, room ORDER BY count(*) DESC, wing, room"""
_PLACES: Final = (
    f"SELECT wing, room, hall, count(*) FROM {DRAWERS} WHERE workspace_id = ? AND {LIVE_DRAWER} GROUP BY ALL"
)
_IDENTITY: Final = f"""SELECT content, author_agent, author_type, author_name FROM {PALACE_IDENTITIES}
    WHERE workspace_id = ? AND {PRESENT}"""


@dataclass(frozen=True, slots=True)
class Drawer:
    """A drawer, the number of its reads, and the results of the background classification."""

    row: DrawerRow
    access_count: int
    last_accessed_ms: int | None
    entity_count: int
    triple_count: int
    retry_count: int

    @property
    def open(self) -> bool:
        """Whether it is neither deleted nor pruned."""
        return self.row.until_seq is None

    @property
    def live(self) -> bool:
        """Whether it counts."""
        return self.open and self.row.superseded_by is None and self.row.state != DrawerState.MERGED

    @property
    def author(self) -> Author:
        """The author of the drawer."""
        row = self.row
        return Author(row.author_type, row.author_name or None, row.added_by_agent or None, row.author_crew)

    @property
    def author_text(self) -> str:
        """The author's name for an answer."""
        return drawer_author(self.row.added_by_agent, self.row.author_type, self.row.author_name)

    def answer(self, caller: Caller) -> DrawerAnswer:
        """The drawer as an answer to a caller; may scan the text, which takes 0.5 to 2 µs per character."""
        row = self.row
        text = shown_text(caller, row.drawer_id, row.content, row.summary)
        read = None if self.last_accessed_ms is None else format_ms(self.last_accessed_ms)
        given = {name: value for name, value in row._asdict().items() if name in DrawerAnswer.model_fields}
        return DrawerAnswer(
            **{**given, "content": text.content, "summary": text.summary},
            quarantined=text.finding,
            id=row.drawer_id,
            author=self.author_text,
            filed_at=format_ms(row.filed_ms),
            held_until=None if row.held_until_ms is None else format_ms(row.held_until_ms),
            last_accessed_at=read,
            access_count=self.access_count,
            entity_count=self.entity_count,
            triple_count=self.triple_count,
            retry_count=self.retry_count,
            live=self.live,
            seq=row.since_seq,
        )


class DrawerReader:
    """Reads drawers in worker threads.

    Args:
        views: The views.
    """

    def __init__(self, views: ViewReader) -> None:
        self._views = views

    async def places(self, workspace_id: str) -> list[PlaceCount]:
        """The places of a workspace that hold live drawers."""
        rows = await self._rows(_PLACES, [workspace_id])
        return [PlaceCount(wing, room, hall or "", drawers) for wing, room, hall, drawers in rows]

    async def latest(self, workspace_id: str, drawer_id: str) -> Drawer | None:
        """The current state of a drawer, or its last state before it was removed."""
        rows = await self._rows(_LATEST, [workspace_id, drawer_id])
        return _drawer(rows[0]) if rows else None

    async def latest_of(self, workspace_id: str, drawer_ids: Sequence[str]) -> list[Drawer]:
        """The same of some drawers."""
        return [_drawer(row) for row in await self._rows(_LATEST_OF, [workspace_id, list(drawer_ids)])]

    async def listed(
        self,
        workspace_id: str,
        wing: str | None = None,
        room: str | None = None,
        hall: str | None = None,
        *,
        agent: str | None = None,
        source: str | None = None,
        limit: int,
        offset: int = 0,
    ) -> list[Drawer]:
        """Live drawers of a place, newest first; optionally only those of an agent or a source."""
        params = {**_place(workspace_id, wing, room, hall, agent, source), "limit": limit, "offset": offset}
        return [_drawer(row) for row in await self._rows(_LISTED, params)]

    async def count(
        self,
        workspace_id: str,
        wing: str | None = None,
        room: str | None = None,
        *,
        agent: str | None = None,
        source: str | None = None,
    ) -> int:
        """Number of live drawers of a place."""
        params = _place(workspace_id, wing, room, agent=agent, source=source)
        return int((await self._rows(_COUNT, params))[0][0])

    async def rooms(self, workspace_id: str, wing: str | None = None) -> list[tuple[str, str, int]]:
        """Wing, room and number of live drawers, the largest first."""
        return [(wing, room, int(count)) for wing, room, count in await self._rows(_ROOMS, _place(workspace_id, wing))]

    async def identity(self, workspace_id: str) -> WorkspaceIdentity | None:
        """The identity of a workspace."""
        rows = await self._rows(_IDENTITY, [workspace_id])
        return WorkspaceIdentity(rows[0][0], drawer_author(*rows[0][1:])) if rows else None

    async def _rows(self, sql: str, params: Sequence[Any] | dict[str, Any]) -> list[tuple[Any, ...]]:
        return await asyncio.to_thread(self._views.rows, sql, params)


@dataclass(frozen=True, slots=True)
class ShownText:
    """The text and summary of a drawer that a caller may read, and the scanners' finding."""

    content: str
    summary: str
    finding: str | None


def shown_text(caller: Caller, named: str, content: str, summary: str = "", *, what: str = "drawer") -> ShownText:
    """A drawer's text or a tunnel's label; a notice instead if the scanners block it and the caller is not an operator."""
    finding = _finding(content) or (_finding(summary) if summary else None)
    if finding is None or caller.administers:
        return ShownText(content, summary, finding)
    notice = notice_of(f"{what} {named}", finding)
    return ShownText(notice, notice if summary else "", finding)


_finding: Final = lru_cache(maxsize=4_096)(finding_in)


def _place(
    workspace_id: str,
    wing: str | None = None,
    room: str | None = None,
    hall: str | None = None,
    agent: str | None = None,
    source: str | None = None,
) -> dict[str, Any]:
    return {"ws": workspace_id, "wing": wing, "room": room, "hall": hall, "agent": agent, "source": source}


def _drawer(row: tuple[Any, ...]) -> Drawer:
    width = len(DrawerRow._fields)
    return Drawer(DrawerRow(*row[:width]), *row[width:])

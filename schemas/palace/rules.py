"""Rules of drawers: noise, chunks, ids, decay, pruning and centroids (contract of the palace, §1, §2, §5, §6, §11).

Invariant: pure; no chunk is longer than ``CHUNK_CHARS``, and none of several chunks is shorter than ``LEAST_CHARS``;
without overlaps, the concatenated chunks equal the text.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ..core.timestamps import DAY_MS
from ..text.kinds import lexicon
from .events import PLACE_CHARS

# The graph of the palace: rooms are nodes, and two wings that share a room are joined by a tunnel.
#
# Invariant: pure; every order is total. A room without a name and the room ``general`` are not nodes.


GENERAL_ROOM: Final = "general"
NODES_SHOWN: Final = 50
"""Maximum number of rooms of one answer."""
TOP_TUNNELS: Final = 10


class PlaceCount(NamedTuple):
    """Number of drawers at a place of the palace."""

    wing: str
    room: str
    hall: str
    drawers: int


class Room(NamedTuple):
    """A room over all wings: sorted wings, sorted halls that have a name, number of drawers."""

    name: str
    wings: tuple[str, ...]
    halls: tuple[str, ...]
    drawers: int


class Reached(NamedTuple):
    """A room that a walk reached, after how many hops, and the wings that it shares with the room before it."""

    room: Room
    hop: int
    connected_via: tuple[str, ...]


class GraphCounts(NamedTuple):
    """Figures of the graph."""

    total_rooms: int
    tunnel_rooms: int
    total_edges: int
    rooms_per_wing: Mapping[str, int]
    top_tunnels: tuple[Room, ...]


def rooms_of(places: Iterable[PlaceCount]) -> dict[str, Room]:
    """The nodes by name."""
    by_room: dict[str, list[PlaceCount]] = {}
    for place in places:
        if place.room not in ("", GENERAL_ROOM):
            by_room.setdefault(place.room, []).append(place)
    return {
        name: Room(
            name,
            tuple(sorted({row.wing for row in rows})),
            tuple(sorted({row.hall for row in rows if row.hall})),
            sum(row.drawers for row in rows),
        )
        for name, rows in sorted(by_room.items())
    }


def walk(rooms: Mapping[str, Room], start: str, max_hops: int) -> list[Reached]:
    """The rooms within some hops of a room, itself included; a hop leads to every room that shares a wing.

    Order: hops, then drawers descending, then name. Rooms that are equally far are reached from the first of them by
    name.

    Raises:
        KeyError: If there is no room ``start``.
    """
    reached = {start: Reached(rooms[start], 0, ())}
    frontier = [rooms[start]]
    for hop in range(1, max_hops + 1):
        next_rooms: list[Room] = []
        for visited in sorted(frontier, key=lambda room: room.name):
            for room in rooms.values():
                if room.name not in reached and (shared := set(visited.wings) & set(room.wings)):
                    reached[room.name] = Reached(room, hop, tuple(sorted(shared)))
                    next_rooms.append(room)
        frontier = next_rooms
    ordered = sorted(reached.values(), key=lambda step: (step.hop, -step.room.drawers, step.room.name))
    return ordered[:NODES_SHOWN]


def tunnels(rooms: Mapping[str, Room], *wings: str) -> list[Room]:
    """Rooms in at least two wings, the given ones among them, by drawers descending, then name."""
    tunnels_ = [room for room in rooms.values() if len(room.wings) > 1 and set(wings) <= set(room.wings)]
    return sorted(tunnels_, key=lambda room: (-room.drawers, room.name))[:NODES_SHOWN]


def graph_counts(rooms: Mapping[str, Room]) -> GraphCounts:
    """Figures of the graph; a room in ``w`` wings gives ``w(w - 1)/2`` edges."""
    shared = [room for room in rooms.values() if len(room.wings) > 1]
    wings = sorted({wing for room in rooms.values() for wing in room.wings})
    return GraphCounts(
        len(rooms),
        len(shared),
        sum(len(room.wings) * (len(room.wings) - 1) // 2 for room in shared),
        {wing: sum(wing in room.wings for room in rooms.values()) for wing in wings},
        tuple(sorted(shared, key=lambda room: (-len(room.wings), -room.drawers, room.name))[:TOP_TUNNELS]),
    )


# The id and the strength of an explicit tunnel (contract of the palace, part C).


FIRST_STRENGTH: Final = 1.0
FIRST_STABILITY: Final = 1.0
"""Days in which the strength falls to 1/e."""
MOST_STRENGTH: Final = 5.0
LEAST_STRENGTH: Final = 0.05
_STRONGER: Final = 0.05
_STABLER: Final = 0.1
_APART_MS: Final = 3_600_000


class Use(NamedTuple):
    """How a tunnel was used: strength when it was last followed, stability in days, and when that was."""

    strength: float
    stability: float
    followed_ms: int


def tunnel_id(end: tuple[str, str], other_end: tuple[str, str]) -> str:
    """``tunnel_<16 hex>`` of two places (wing, room), the same in both orders."""
    ends = json.dumps(sorted((end, other_end)), ensure_ascii=False)
    return f"tunnel_{hashlib.sha256(ends.encode()).hexdigest()[:16]}"


def followed(use: Use, now_ms: int) -> Use:
    """The use after the tunnel was followed at a time."""
    spaced = now_ms - use.followed_ms >= _APART_MS
    return Use(
        min(MOST_STRENGTH, use.strength + _STRONGER),
        use.stability + _STABLER if spaced else use.stability,
        max(use.followed_ms, now_ms),
    )


def strength_at(use: Use, now_ms: int) -> float:
    """The strength at a time."""
    days = max(0, now_ms - use.followed_ms) / DAY_MS
    return max(LEAST_STRENGTH, use.strength * math.exp(-days / use.stability))


LEAST_MEANING_CHARS: Final = 10
"""Shorter texts are noise."""
CHUNK_CHARS: Final = 800
OVERLAP_CHARS: Final = 100
LEAST_CHARS: Final = 50
"""A shorter last chunk is joined with the previous chunk, or takes text from it."""
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+")
DELEGATION: Final = "delegation"
"""Kind of a turn that delegates work to another agent; it is not filed."""


class Spoken(NamedTuple):
    """A turn to file; if it ``answers`` the previous question, it is never noise."""

    speaker: str
    text: str
    kind: str = ""
    answers: bool = False


def is_noise(text: str) -> bool:
    """Whether a text is noise: very short, blank, or only a greeting, thanks, assent or the like."""
    return len(text) < LEAST_MEANING_CHARS or not text.strip() or lexicon().filler.fullmatch(text.strip()) is not None


def exchange(user: str, replies: Sequence[tuple[str, str]]) -> str | None:
    """A turn of conversation as the text to file; None if it is noise.

    Args:
        user: The user's text.
        replies: Kind and text of each reply; delegations, empty replies and noise are left out.
    """
    return conversation([Spoken("User", user), *(Spoken("Agent", text, kind) for kind, text in replies)])


def conversation(turns: Sequence[Spoken]) -> str | None:
    """Turns as the text to file, without delegations, empty turns and noise; None if nothing is left."""
    speeches = [
        f"{turn.speaker}: {turn.text}"
        for turn in turns
        if turn.kind != DELEGATION and turn.text.strip() and (turn.answers or not is_noise(turn.text))
    ]
    return "\n\n".join(speeches) or None


def chunks_of(text: str) -> list[str]:
    """Chunks of at most 800 characters, cut at ends of sentences; each repeats up to 100 of the previous one."""
    if len(text) <= CHUNK_CHARS:
        return [text]
    starts = _cuts(text)
    bounds = list(zip(starts, [*starts[1:], len(text)], strict=True))
    return [text[max(0, begin - _overlap(begin, end)) : end] for begin, end in bounds]


def _overlap(begin: int, end: int) -> int:
    return min(OVERLAP_CHARS, CHUNK_CHARS - (end - begin)) if begin else 0


def _cuts(text: str) -> list[int]:
    """Start positions of chunks, without overlaps: at the last end of a sentence that fits, else after 700 characters."""
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    starts = [0]
    at = 0
    while len(text) - starts[-1] > CHUNK_CHARS - (OVERLAP_CHARS if starts[-1] else 0):
        begin = starts[-1]
        latest = begin + CHUNK_CHARS - OVERLAP_CHARS
        best = None
        while at < len(ends) and ends[at] <= latest:
            if ends[at] - begin >= LEAST_CHARS:
                best = ends[at]
            at += 1
        starts.append(min(best or latest, len(text) - LEAST_CHARS))
    return starts


# Ids and places of drawers (contract of the palace, §1 and §11).


DIARY: Final = "diary"
"""Wing of all diaries, room of an entry without a topic, and type of their drawers."""
_ID_PLACE_CHARS: Final = 120
_NOT_IN_ID: Final = re.compile(r"[^\w-]+")


def drawer_id(wing: str, room: str, content: str) -> str:
    """``drawer_<wing>_<room>_<16 hex>``: the hex digits are the first eight bytes of the content's SHA-256."""
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    return f"drawer_{_in_id(wing)}_{_in_id(room)}_{digest}"


def agent_slug(name: str) -> str:
    """The hall of an agent's diary: trimmed, lower-case, blanks to ``_``, without apostrophes, at most ``PLACE_CHARS``.

    The lower case of some letters has several characters, so the result may be longer than the name.
    """
    return re.sub(r"\s+", "_", re.sub(r"['’]", "", name.strip().lower()))[:PLACE_CHARS]


def _in_id(place: str) -> str:
    return _NOT_IN_ID.sub("_", place)[:_ID_PLACE_CHARS]


# The decay of drawers, their pruning, and the centroids of types (contract of the palace, §5 and §6).

"""Type of entries of a diary, which do not decay and are not merged."""
DECAY_FACTOR: Final = 0.98
"""Factor of the importance per night: half after 34 nights (contract, §5)."""
DECAY_FLOOR: Final = 0.3
DECAY_AGE_DAYS: Final = 30
"""Minimum age in days for decay and pruning (likewise)."""
DECAY_UNREAD_DAYS: Final = 7
"""Minimum days since the last read for decay (likewise)."""
ACTIVE_MS: Final = 24 * 3_600_000
"""In a workspace in which no drawer was filed or read for 24 hours, drawers neither decay nor are pruned (likewise)."""
PRUNE_BELOW: Final = 0.5
"""Importance below which a drawer may be pruned (likewise)."""
PRUNE_READS: Final = 3
"""Number of reads that protects a drawer from pruning (likewise)."""
KEPT: Final = 100
"""Minimum number of live drawers that pruning leaves in a workspace (likewise)."""
REINFORCE_ABOVE: Final = 0.7
"""Minimum cosine at which an added drawer reinforces an earlier drawer (likewise)."""
REINFORCE_AMONG: Final = 5
"""Maximum number of nearest drawers that an added drawer reinforces (likewise)."""
REINFORCE_BOOST: Final = 0.5
"""Importance that each reinforced drawer gains (likewise)."""
CENTROID_DAYS: Final = 90
CENTROID_MOST: Final = 500
"""Maximum number of drawers whose mean is the centroid of a type, the most important and newest (contract, §6)."""
CENTROID_LEAST: Final = 50
"""Minimum number of drawers for a centroid (likewise)."""


@dataclass(frozen=True, slots=True)
class Fading:
    """A live, processed drawer that may be pruned; ``importance`` is the value after its decays."""

    drawer_id: str
    importance: float
    access_count: int


def decayed(importance: float, decays: int) -> float:
    """The importance after so many decays: ``max(importance * 0.98 ** decays, 0.3)``; values up to 0.3 do not change."""
    return max(importance * DECAY_FACTOR**decays, min(importance, DECAY_FLOOR))


def pruned(fading: Iterable[Fading], live: int) -> list[str]:
    """The ids of the drawers to prune, the least important first.

    Args:
        fading: The live drawers that are processed.
        live: Number of live drawers.
    """
    weak = [drawer for drawer in fading if drawer.importance < PRUNE_BELOW and drawer.access_count < PRUNE_READS]
    weak.sort(key=lambda drawer: (drawer.importance, drawer.drawer_id))
    return [drawer.drawer_id for drawer in weak[: max(live - KEPT, 0)]]


def source_hash(drawer_ids: Sequence[str]) -> str:
    """Hex SHA-256 over the sorted ids, each followed by a zero byte."""
    return hashlib.sha256("".join(f"{drawer_id}\0" for drawer_id in sorted(drawer_ids)).encode()).hexdigest()

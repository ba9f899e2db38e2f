"""Rules of drawers: noise, chunks, ids, decay, pruning and centroids (contract of the palace, §1, §2, §5, §6, §11).

Invariant: pure; no chunk is longer than ``CHUNK_CHARS``, and none of several chunks is shorter than ``LEAST_CHARS``;
without overlaps, the concatenated chunks equal the text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ..text.kinds import lexicon
from .events import PLACE_CHARS

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

"""Cuts a conversation into exchanges, and decides how an exchange is filed (contract of the palace, §2.1 and §2.5).

An exchange begins with a turn of the user, or with any turn that comes ``QUIET_MS`` after the one before it, and
lasts until the next exchange of its session begins.

Invariant: pure; exchanges follow from the turns in stream order and the broker's times alone, so a turn always
belongs to the same exchange.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...events.drawers import DrawerState, PipelineTier
from .classifier import Classified, classify, room_of
from .texts import chunks_of, exchange

USER_TURN: Final = "chat.user_message"
AGENT_TURN: Final = "chat.agent_response"
QUIET_MS: Final = 300_000
"""Silence that ends an exchange: longer than most agents work on an answer."""
WING: Final = "conversations"
LEAST_CONFIDENCE: Final = 0.3
"""A chunk whose classifier is less confident is ``general``."""
SAME_COSINE: Final = 0.85
"""Above this cosine with a live drawer, a chunk is not filed."""
OFF: Final = 999.0
"""A threshold that no confidence reaches, so that a model decides."""
HIGH, LOW = 0.8, 0.5
"""Thresholds while no chat model is configured."""
CENTROID_COSINE: Final = 0.85


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of a conversation."""

    seq: int
    entry_id: str
    session: str
    entry_type: str
    agent_id: str
    text: str
    kind: str
    published_ms: int

    @property
    def is_user(self) -> bool:
        """Whether the user speaks."""
        return self.entry_type == USER_TURN


@dataclass(frozen=True, slots=True)
class Exchange:
    """The turns of one exchange, and whether more may follow."""

    turns: tuple[Turn, ...]
    ended: bool

    @property
    def head(self) -> Turn:
        """The turn that names the exchange."""
        return self.turns[0]

    @property
    def text(self) -> str | None:
        """The exchange as one text; None if it is noise."""
        user = self.head.text if self.head.is_user else ""
        return exchange(user, [(one.kind, one.text) for one in self.turns if not one.is_user])


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Confidences from which the classifier decides alone (``high``), or with a centroid (``low``)."""

    high: float
    low: float

    @classmethod
    def of(cls, high: str | None, low: str | None, *, has_model: bool) -> Thresholds:
        """The thresholds from the values of the two settings; a value that is not a number counts as ``OFF``."""
        return cls(*(_number(one, OFF if has_model else default) for one, default in ((high, HIGH), (low, LOW))))


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of an exchange as it is filed."""

    text: str
    memory_type: str
    room: str
    importance: float
    tier: PipelineTier
    state: DrawerState
    found: Classified


def exchanges_of(turns: Sequence[Turn], now_ms: int, quiet_ms: int = QUIET_MS) -> list[Exchange]:
    """The exchanges of one session.

    Args:
        turns: In stream order.
        now_ms: An exchange has ended if another began, or if its last turn is more than ``quiet_ms`` before this.
        quiet_ms: The silence.
    """
    starts = [
        at
        for at, turn in enumerate(turns)
        if not at or turn.is_user or turn.published_ms - turns[at - 1].published_ms > quiet_ms
    ]
    ends = [*starts[1:], len(turns)]
    last = len(starts) - 1
    return [
        Exchange(tuple(turns[begin:end]), at < last or now_ms - turns[end - 1].published_ms > quiet_ms)
        for at, (begin, end) in enumerate(zip(starts, ends, strict=True))
    ]


def filed_chunks(text: str, thresholds: Thresholds) -> list[Chunk]:
    """The chunks of an exchange, each with its type, room, importance and tier, as far as words decide them."""
    return [chunk_of(one, classify(one, LEAST_CONFIDENCE), thresholds) for one in chunks_of(text)]


def chunk_of(text: str, found: Classified, thresholds: Thresholds, nearest: tuple[str, float] | None = None) -> Chunk:
    """A chunk; for the arguments see ``tier_of``."""
    tier, memory_type = tier_of(found, thresholds, nearest)
    state = DrawerState.RAW if tier is PipelineTier.LLM else DrawerState.PROCESSED
    return Chunk(text, memory_type, room_of(memory_type), found.importance, tier, state, found)


def tier_of(
    found: Classified, thresholds: Thresholds, nearest: tuple[str, float] | None = None
) -> tuple[PipelineTier, str]:
    """The step that decides the type of a chunk, and the type.

    Args:
        found: The result of the classifier.
        thresholds: The two settings.
        nearest: Type and cosine of the nearest centroid, None without one; above ``CENTROID_COSINE`` its type counts.
    """
    if found.confidence >= thresholds.high:
        return PipelineTier.HEURISTIC, found.memory_type
    if found.confidence >= thresholds.low and nearest is not None and nearest[1] > CENTROID_COSINE:
        return PipelineTier.CENTROID, nearest[0]
    return PipelineTier.LLM, found.memory_type


def _number(text: str | None, default: float) -> float:
    if text is None:
        return default
    try:
        return float(text)
    except ValueError:
        return OFF

"""Cuts a conversation into exchanges, and decides how an exchange is filed (contract of the palace, §2.1 and §2.5).

An exchange begins with a turn of the user, or with any turn that comes ``QUIET_MS`` after the one before it, and lasts
until the next exchange of its session begins. A short answer of the user to a question stays with the question: "Yes,
Tuesday." means nothing without it. If the answer comes later, its exchange starts with a repetition of the question.

Invariant: pure; exchanges follow from the turns in stream order and the broker's times alone, so a turn always
belongs to the same exchange.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..entries.rules import USER_MESSAGE
from ..text.kinds import CHATTER, FACT, kind_of_turns, lexicon
from .events import DEFAULT_IMPORTANCE, MOST_IMPORTANCE, DrawerState, PipelineTier
from .rules import Spoken, chunks_of, conversation

# Classifies a text without a model, by markers (contract of the palace, §2.4).
#
# score(type) = number of matches of its markers in lower-cased prose, code left out
# confidence = min(1, (score of the best type + bonus) / 5), bonus 2 above 500 characters, 1 above 200
# Ties go to the type that is first in the alphabet. ``fact`` and ``task`` have no markers.
#
# Invariant: if a problem that sounds solved or positive gets a different type, the confidence is still that of
# ``problem``.


DIVISOR: Final = 5.0
LONG_CHARS, LONGER_CHARS = 200, 500
LEAST_SEGMENT_CHARS: Final = 20
LINES_OF_ONE: Final = 20
"""A text of one paragraph with more lines is cut into groups of lines."""
GROUP_LINES: Final = 25
LEAST_LETTERS: Final = 0.4
"""A line with a smaller share of letters, of any script, is code."""
GENERAL: Final = "general"
ROOMS: Final = {
    "decision": "decisions",
    "preference": "preferences",
    "milestone": "milestones",
    "problem": "problems",
    "emotional": "emotional",
    "fact": "facts",
    "task": "tasks",
}

_TURN: Final = re.compile(r"^\s*(?:> |(?:human|user|q|assistant|ai|a|claude|chatgpt|agent)\s*:)", re.IGNORECASE)
_LEAST_TURNS: Final = 3
_FENCED: Final = re.compile(r"^\s*```.*?(?:^\s*```\s*$|\Z)", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(
    r"^\s*(?:[$#>]\s+\S+\s|(?:cd|ls|git|pip|npm|sudo|docker|kubectl|make|curl|export)\s+[\w./-]|"
    r"(?:import|from|def|class|return|const|let|var|function|func)\s+[\w{*(]+.*[=(:;{]|\||[-=*_]{3,}\s*$|[\[\]{}()]+[,;]?\s*$|"
    r"\w+(?:\.\w+)+\s*=|[A-Z][A-Z0-9_]+=|(?:if|for|while|elif|else|try|except|with)\b.*[:{]\s*$)"
)
_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Classified:
    """The classification of a text.

    Attributes:
        memory_type: The type; ``general`` if no marker matches.
        confidence: 0 to 1, in fifths.
    """

    memory_type: str
    confidence: float

    @property
    def room(self) -> str:
        """The room of the type."""
        return room_of(self.memory_type)

    @property
    def importance(self) -> float:
        """The initial importance of a drawer of this type."""
        return max(DEFAULT_IMPORTANCE, MOST_IMPORTANCE * self.confidence)


UNCLASSIFIED: Final = Classified(GENERAL, 0.0)


def room_of(memory_type: str) -> str:
    """The room in which drawers of a type are filed; ``general`` for every other text."""
    return ROOMS.get(memory_type, GENERAL)


def classify(text: str, least: float = 0.0) -> Classified:
    """The most confident type over all segments; ``UNCLASSIFIED`` if it is less confident than ``least``."""
    classified_segments = [classify_segment(segment) for segment in segments_of(text)]
    best = max(classified_segments, key=lambda classified: classified.confidence, default=UNCLASSIFIED)
    return best if best.confidence >= least else UNCLASSIFIED


def classify_segment(segment: str) -> Classified:
    """The type of one segment."""
    prose = (prose_of(segment) or segment).lower()
    scores = {kind: sum(marker.count(prose) for marker in markers) for kind, markers in lexicon().markers.items()}
    best = max(scores, key=lambda kind: scores[kind])  # on a tie the first, because types are sorted
    if not scores[best]:
        return UNCLASSIFIED
    return Classified(_disambiguated(best, scores, prose), confidence_of(scores[best], len(segment)))


def confidence_of(score: int, chars: int) -> float:
    """The confidence, computed from the number of matches and of characters."""
    return min(1.0, (score + (chars > LONG_CHARS) + (chars > LONGER_CHARS)) / DIVISOR)


def segments_of(text: str) -> list[str]:
    """The parts that are classified separately: turns of a conversation, else paragraphs, else groups of lines."""
    lines = text.split("\n")
    turns = [at for at, line in enumerate(lines) if _TURN.match(line)]
    if len(turns) >= _LEAST_TURNS:
        starts = sorted({0, *turns})
        parts = ["\n".join(lines[begin:end]) for begin, end in zip(starts, [*starts[1:], len(lines)], strict=True)]
    else:
        parts = [part for part in re.split(r"\n\s*\n", text) if part.strip()]
        if len(parts) <= 1 and len(lines) > LINES_OF_ONE:
            parts = ["\n".join(lines[at : at + GROUP_LINES]) for at in range(0, len(lines), GROUP_LINES)]
    return [part.strip() for part in parts if len(part.strip()) >= LEAST_SEGMENT_CHARS]


def prose_of(segment: str) -> str:
    """The segment without code."""
    return "\n".join(line for line in _FENCED.sub("", segment).split("\n") if not _is_code(line)).strip()


def _is_code(line: str) -> bool:
    if _CODE.match(line):
        return True
    text = line.strip()
    return len(text) > 10 and sum(map(str.isalpha, text)) < LEAST_LETTERS * len(text)


def _disambiguated(kind: str, scores: dict[str, int], prose: str) -> str:
    """The type of a problem that is solved (milestone or emotional) or sounds positive (its next best type)."""
    if kind != "problem":
        return kind
    words = set(_WORD.findall(prose))
    known = lexicon()
    glad = len(words & known.positive) > len(words & known.negative)
    if known.resolution.search(prose):
        return "emotional" if scores["emotional"] and glad else "milestone"
    if glad:
        return next((other for other in ("milestone", "emotional") if scores[other]), kind)
    return kind


QUIET_MS: Final = 300_000
"""Silence that ends an exchange: longer than most agents work on an answer."""
ANSWER_CHARS: Final = 80
"""Characters of the longest answer that is kept with its question: a sentence or two."""
ANSWER_MS: Final = 3_600_000
"""Maximum time between a question and a short turn that answers it; also how far back the beginning of an exchange is
searched.
"""
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
_SPEAKER: Final = re.compile(r"^(?:User|Agent): ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ExchangeTurn:
    """A turn of a conversation."""

    seq: int
    entry_id: str
    session: str
    entry_type: str
    agent_id: str
    text: str
    kind: str
    published_ms: int
    ts_ms: int
    """When it was said; an imported turn was published later."""

    @property
    def is_user(self) -> bool:
        """Whether the user speaks."""
        return self.entry_type == USER_MESSAGE


@dataclass(frozen=True, slots=True)
class Exchange:
    """The turns of one exchange, and whether more may follow.

    Attributes:
        question: The question that the first turn answers, if it belongs to an earlier exchange.
    """

    turns: tuple[ExchangeTurn, ...]
    ended: bool
    question: ExchangeTurn | None = None

    @property
    def head(self) -> ExchangeTurn:
        """The turn that names the exchange."""
        return self.turns[0]

    @property
    def said_ms(self) -> int:
        """When its last turn was said, and not after it was published."""
        last = self.turns[-1]
        return min(last.ts_ms, last.published_ms)

    @property
    def text(self) -> str | None:
        """The exchange as one text; None if it is noise."""
        turns = self.turns if self.question is None else (self.question, *self.turns)
        return conversation(
            [
                Spoken(
                    "User" if turn.is_user else "Agent",
                    turn.text,
                    turn.kind,
                    turn.is_user and at > 0 and answers(turns[at - 1], turn),
                )
                for at, turn in enumerate(turns)
            ]
        )


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Confidences from which the classifier decides alone (``high``), or with a centroid (``low``)."""

    high: float
    low: float

    @classmethod
    def of(cls, high: str | None, low: str | None, *, has_model: bool) -> Thresholds:
        """The thresholds from the values of the two settings; a value that is not a number counts as ``OFF``."""
        return cls(*(_number(value, OFF if has_model else default) for value, default in ((high, HIGH), (low, LOW))))


@dataclass(frozen=True, slots=True)
class ExchangeChunk:
    """A chunk of an exchange as it is filed."""

    text: str
    memory_type: str
    room: str
    importance: float
    tier: PipelineTier
    state: DrawerState
    classified: Classified


def may_answer(turn: ExchangeTurn) -> bool:
    """Whether a turn of the user is short enough to be an answer, and asks nothing itself."""
    return turn.is_user and len(turn.text) <= ANSWER_CHARS and not asks(turn)


def asks(turn: ExchangeTurn) -> bool:
    """Whether a turn ends with a question."""
    return turn.text.rstrip(" )\"'”’»\n").endswith("?")


def answers(question: ExchangeTurn, turn: ExchangeTurn) -> bool:
    """Whether a turn answers the question before it: a short turn of the user, or the agent's reply to the user."""
    gap_ms = max(turn.published_ms - question.published_ms, turn.ts_ms - question.ts_ms)
    replies = question.is_user and not turn.is_user
    return asks(question) and (replies or may_answer(turn)) and gap_ms <= ANSWER_MS


def exchanges_of(turns: Sequence[ExchangeTurn], now_ms: int, quiet_ms: int = QUIET_MS) -> list[Exchange]:
    """The exchanges of one session.

    Args:
        turns: In stream order.
        now_ms: An exchange has ended if another began, or if its last turn is more than ``quiet_ms`` before this.
        quiet_ms: The silence.
    """
    late = [bool(at) and turn.published_ms - turns[at - 1].published_ms > quiet_ms for at, turn in enumerate(turns)]
    replies = [bool(at) and answers(turns[at - 1], turn) for at, turn in enumerate(turns)]
    starts = [at for at, turn in enumerate(turns) if not at or late[at] or (turn.is_user and not replies[at])]
    ends = [*starts[1:], len(turns)]
    last = len(starts) - 1
    return [
        Exchange(
            tuple(turns[begin:end]),
            at < last or now_ms - turns[end - 1].published_ms > quiet_ms,
            turns[begin - 1] if replies[begin] else None,
        )
        for at, (begin, end) in enumerate(zip(starts, ends, strict=True))
    ]


def turns_in(text: str) -> list[str]:
    """The turns of an exchange as it is filed, without their labels; a text without labels is one turn."""
    return [part for part in _SPEAKER.split(text) if part.strip()]


def filed_chunks(text: str, thresholds: Thresholds) -> list[ExchangeChunk]:
    """The chunks of an exchange, each with its type, room, importance and tier, as far as words decide them.

    If the classifier is not sure, the cues of ``kinds`` decide, turn by turn. An exchange that consists only of chatter
    gives no chunk; chatter within a longer exchange is kept.
    """
    parts = chunks_of(text)
    chunks = []
    for part in parts:
        classified = classify(part, LEAST_CONFIDENCE)
        if classified.memory_type == GENERAL:
            kind = kind_of_turns(turns_in(part))
            if kind == CHATTER and len(parts) == 1:
                continue
            classified = Classified(FACT if kind == CHATTER else kind, classified.confidence)
        chunks.append(chunk_of(part, classified, thresholds))
    return chunks


def chunk_of(
    text: str, classified: Classified, thresholds: Thresholds, nearest: tuple[str, float] | None = None
) -> ExchangeChunk:
    """A chunk; for the arguments see ``tier_of``."""
    tier, memory_type = tier_of(classified, thresholds, nearest)
    state = DrawerState.RAW if tier is PipelineTier.LLM else DrawerState.PROCESSED
    return ExchangeChunk(text, memory_type, room_of(memory_type), classified.importance, tier, state, classified)


def tier_of(
    classified: Classified, thresholds: Thresholds, nearest: tuple[str, float] | None = None
) -> tuple[PipelineTier, str]:
    """The step that decides the type of a chunk, and the type.

    Args:
        classified: The result of the classifier.
        thresholds: The two settings.
        nearest: Type and cosine of the nearest centroid, None without one; above ``CENTROID_COSINE`` its type counts.
    """
    if classified.confidence >= thresholds.high:
        return PipelineTier.HEURISTIC, classified.memory_type
    if classified.confidence >= thresholds.low and nearest is not None and nearest[1] > CENTROID_COSINE:
        return PipelineTier.CENTROID, nearest[0]
    return PipelineTier.LLM, classified.memory_type


def _number(text: str | None, default: float) -> float:
    if text is None:
        return default
    try:
        return float(text)
    except ValueError:
        return OFF

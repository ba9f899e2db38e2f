"""Rules of relations between entries: which events take precedence, and the direction in which an edge is stored.

Invariant: pure; the view ``memory_relations`` and the hot index use these rules, so both agree. An assertion or
retraction overrides what a reactor finds (derived, proposed). One by an operator (OWNER, ADMIN) overrides one by an
agent, whichever came first; between callers of equal authority the latest counts. So a retracted relation returns
only if a caller of at least the same authority asserts it again.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

from ..core.entry import ActorType

VERSION: Final = 3

SIMILAR: Final = "similar"
SUPPORTS: Final = "supports"
CONTRADICTS: Final = "contradicts"
SUPERSEDES: Final = "supersedes"
"""From the newer statement to the older one that it retires (``updates``); newer by the time from which it holds."""
SYMMETRIC: Final = frozenset({SIMILAR, CONTRADICTS})
"""Symmetric relations: one edge per pair, stored from the newer entry to the older (seed 1)."""
EVIDENCE_REF: Final = "evidence"
"""Key of ``refs`` of a ``rule.learned`` or ``memory.consolidated`` entry that lists the ids of its evidence."""
EVIDENCE_WEIGHT: Final = 1.0
"""Weight of ``supports`` (contract §7)."""


class RelationState(StrEnum):
    """Origin of an edge: found by a reactor, proposed by a reactor, asserted by a caller, or retracted."""

    DERIVED = "derived"
    PROPOSED = "proposed"
    ASSERTED = "asserted"
    RETRACTED = "retracted"


class Authority(IntEnum):
    """Authority behind an edge, the highest last; the numbers are stored in ``memory_relations``."""

    REACTOR = 0
    AGENT = 1
    OPERATOR = 2


_OPERATORS: Final = frozenset({ActorType.USER, ActorType.SYSTEM})


def authority_of(actor: ActorType) -> Authority:
    """The authority of an assertion or retraction, by its actor: OWNER and ADMIN are users, every other role is an agent."""
    return Authority.OPERATOR if actor in _OPERATORS else Authority.AGENT


def found_state(relation: str) -> RelationState:
    """The state of an edge that a reactor found; contradictions and updates are only proposed."""
    return RelationState.PROPOSED if relation in (CONTRADICTS, SUPERSEDES) else RelationState.DERIVED


def outweighs(new: Authority, known: Authority | None) -> bool:
    """Whether a later event of authority ``new`` replaces the state of an edge (``known`` is None if there is no edge)."""
    return known is None or new >= known


def is_possible(src: str, src_seq: int, dst: str, dst_seq: int, seq: int) -> bool:
    """Whether the event at ``seq`` may relate two entries: they must differ and both precede it."""
    return src != dst and src_seq != dst_seq and max(src_seq, dst_seq) < seq


def is_turned(relation: str, src_seq: int, dst_seq: int | None) -> bool:
    """Whether to exchange source and destination: symmetric edges lead from the newer entry to the older."""
    return relation in SYMMETRIC and dst_seq is not None and dst_seq > src_seq


# Which entries the rules of updates and contradictions may compare: those of one mission and person, in no keyed
# store.


ITEM: Final = "item"
"""Kind of slot: an item of a LangGraph store."""
RECORD: Final = "record"
"""Kind of slot: a record of a CrewAI storage."""
_slot = re.compile(rf"(?:{ITEM}|{RECORD})_[0-9a-f]{{32}}\Z")


class Sphere(NamedTuple):
    """The fields of an entry that decide with which others it is compared.

    Adapters name the user or the store in ``mission_id``; ``data_subject_id`` is the person whose data it is.
    """

    mission_id: str | None = None
    data_subject_id: str | None = None
    trace_id: str | None = None

    def meets(self, other: Sphere) -> bool:
        """Whether a rule may take one of two entries for an update or a contradiction of the other."""
        if is_slot(self.trace_id) or is_slot(other.trace_id):
            return False
        return (self.mission_id, self.data_subject_id) == (other.mission_id, other.data_subject_id)


def slot(kind: str, key: str) -> str:
    """The ``trace_id`` that all versions of one item of a keyed store share.

    Args:
        kind: ``ITEM`` or ``RECORD``.
        key: The key as one text.
    """
    return f"{kind}_{hashlib.sha256(key.encode()).hexdigest()[:32]}"


def is_slot(trace_id: str | None) -> bool:
    """Whether an entry with this ``trace_id`` is a version of an item of a keyed store, whose key decides what counts."""
    return trace_id is not None and _slot.match(trace_id) is not None


# What a rule or a model says about two texts: that the newer one retires or amends the older one, or that they contradict.
#
# One type for all kinds of text: entries, drawers, facts, lines of documents.


ACCEPTED: Final = 0.7
"""Minimum confidence of an update that is published."""
BORDERLINE: Final = 0.8
"""Below this confidence, a language model is asked if one is configured."""
CONFIRMED: Final = 0.9
"""Confidence of a borderline verdict that the language model confirmed."""


class Consequence(StrEnum):
    """The effect of a newer statement on an older one."""

    REPLACES = "replaces"
    AMENDS = "amends"
    """The older statement holds in its other parts."""
    WITHDRAWS = "withdraws"
    REINSTATES = "reinstates"
    CONTRADICTS = "contradicts"
    """Both cannot hold, and neither says that it is the newer state."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement.

    Attributes:
        text: Its text.
        day: The day it was made, days since 1970-01-01 (UTC), for relative dates; None if not known.
        speaker: The name of the person who made it, to whom "I" refers; None if not known.
        is_turn: Whether it is a turn of a conversation. Of two such texts, or of one and a note, only one that names what
            no longer holds or another number, date or name retires the other: much in a conversation sounds alike.
    """

    text: str
    day: int | None = None
    speaker: str | None = None
    is_turn: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a newer statement does to an older one.

    Attributes:
        effect: Its effect.
        confidence: Confidence of the rule, in (0, 1].
        reason: The reason, for people.
        since_day: Day from which the newer statement holds, days since 1970-01-01, if its text names one later than the
            day it was made.
        match: How much the two have in common, to choose among several older statements: the highest.
        of_attitude: Whether somebody does not like any more what the older statement says that they like, or the reverse.
    """

    effect: Consequence
    confidence: float
    reason: str
    since_day: int | None = None
    match: float = 0.0
    of_attitude: bool = False

    @property
    def retires(self) -> bool:
        """Whether the older statement holds no longer."""
        return self.effect not in (Consequence.AMENDS, Consequence.CONTRADICTS) and self.confidence >= ACCEPTED

    @property
    def is_borderline(self) -> bool:
        """Whether to ask a language model."""
        return self.confidence < BORDERLINE

    def confirmed(self) -> Verdict:
        """The same after a model agreed."""
        return replace(self, confidence=CONFIRMED, reason=f"{self.reason}; confirmed by a language model")

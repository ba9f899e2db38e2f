"""Rules of relations between entries: which events take precedence, and the direction in which an edge is stored.

Invariant: pure; the view ``memory_relations`` and the hot index use these rules, so both agree. An assertion or
retraction overrides what a reactor finds (derived, proposed). One by an operator (OWNER, ADMIN) overrides one by an
agent, whichever came first; between callers of equal authority the latest counts. So a retracted relation returns
only if a caller of at least the same authority asserts it again.
"""

from __future__ import annotations

import hashlib
import re
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

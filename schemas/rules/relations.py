"""How relations between entries behave: which event outweighs which, and which way an edge is stored.

Invariant: pure; the fold of ``memory_relations`` and the edges in the hot index follow the same rules, so both agree after
any sequence of events. What is said (asserted, retracted) outweighs what a reactor finds (derived, proposed), and what an
operator (OWNER, ADMIN) says outweighs an agent's word, whichever came first; among equals the last one holds. A retracted
relation comes back only when somebody of at least the same authority asserts it again.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final

from ..entry import ActorType

VERSION: Final = 2

SIMILAR: Final = "similar"
SUPPORTS: Final = "supports"
CONTRADICTS: Final = "contradicts"
SYMMETRIC: Final = frozenset({SIMILAR, CONTRADICTS})
"""Relations that say the same read either way: one edge a pair, stored from the newer entry to the older (seed 1)."""
EVIDENCE_REF: Final = "evidence"
"""Key of ``refs`` of a ``memory.consolidated`` entry that lists the ids of its evidence."""
EVIDENCE_WEIGHT: Final = 1.0
"""Weight of ``supports`` (contract §7)."""


class RelationState(StrEnum):
    """What an edge rests on: a reactor's finding, a reactor's suspicion, somebody's word, or nothing any more."""

    DERIVED = "derived"
    PROPOSED = "proposed"
    ASSERTED = "asserted"
    RETRACTED = "retracted"


class Authority(IntEnum):
    """Whose word an edge rests on, weightier ones last; the numbers are stored in ``memory_relations``."""

    REACTOR = 0
    AGENT = 1
    OPERATOR = 2


_OPERATORS: Final = frozenset({ActorType.USER, ActorType.SYSTEM})


def authority_of(actor: ActorType) -> Authority:
    """The authority of an assertion or retraction, by its actor: OWNER and ADMIN are users, every other role is an agent."""
    return Authority.OPERATOR if actor in _OPERATORS else Authority.AGENT


def found_state(relation: str) -> RelationState:
    """The state of an edge that a reactor found: a contradiction is only proposed."""
    return RelationState.PROPOSED if relation == CONTRADICTS else RelationState.DERIVED


def outweighs(new: Authority, known: Authority | None) -> bool:
    """Whether a later event of authority ``new`` replaces what is known of an edge (None for nothing)."""
    return known is None or new >= known


def is_possible(src: str, src_seq: int, dst: str, dst_seq: int, seq: int) -> bool:
    """Whether the event at ``seq`` may relate these two: two different entries, both there before it."""
    return src != dst and src_seq != dst_seq and max(src_seq, dst_seq) < seq


def is_turned(relation: str, src_seq: int, dst_seq: int | None) -> bool:
    """Whether source and destination are to be exchanged: symmetric edges lead from the newer entry to the older."""
    return relation in SYMMETRIC and dst_seq is not None and dst_seq > src_seq

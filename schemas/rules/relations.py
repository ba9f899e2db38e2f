"""How relations between entries behave: which event outweighs which, and which way an edge is stored.

Invariant: pure; the fold of ``memory_relations`` and the edges in the hot index follow the same rules, so both agree after
any sequence of events. What people say (asserted, retracted) outweighs what a reactor finds (derived, proposed); a retracted
relation comes back only when somebody asserts it again.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

VERSION: Final = 1

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


_SPOKEN: Final = frozenset({RelationState.ASSERTED, RelationState.RETRACTED})


def found_state(relation: str) -> RelationState:
    """The state of an edge that a reactor found: a contradiction is only proposed."""
    return RelationState.PROPOSED if relation == CONTRADICTS else RelationState.DERIVED


def outweighs(new: RelationState, known: RelationState | None) -> bool:
    """Whether an event that says ``new`` replaces what is known of an edge (None for nothing)."""
    return new in _SPOKEN or known not in _SPOKEN


def is_possible(src: str, src_seq: int, dst: str, dst_seq: int, seq: int) -> bool:
    """Whether the event at ``seq`` may relate these two: two different entries, both there before it."""
    return src != dst and src_seq != dst_seq and max(src_seq, dst_seq) < seq


def is_turned(relation: str, src_seq: int, dst_seq: int | None) -> bool:
    """Whether source and destination are to be exchanged: symmetric edges lead from the newer entry to the older."""
    return relation in SYMMETRIC and dst_seq is not None and dst_seq > src_seq

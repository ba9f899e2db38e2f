"""Which entries the rules of updates and contradictions may compare: those of one mission and person, in no keyed store.

Invariant: pure; the link reactor (what it proposes) and the standing (what counts of it) use this rule, so both agree. What
a caller asserts does not depend on it.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, NamedTuple

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

"""The one judge of two texts: whether the newer retires the older, or whether both cannot hold.

``link`` judges entries, ``palace_classify`` drawers and the facts that they state, ``reflect`` facts, and the verifier of
memory documents lines and pinned facts. What differs among them is data: which pairs they ask about, and what they do with a
verdict that is borderline. ``link`` stores a verdict as a row of ``memory_relations``; a drawer that is superseded keeps it
in its own row (``drawer.superseded``), because the contract of the palace gives the drawer's later states from there.

Invariant: pure.
"""

from __future__ import annotations

from .contradiction import contradiction
from .rules import CONTRADICTS
from .updates import update
from .verdicts import Statement, Verdict


def judge(
    newer: Statement,
    older: Statement,
    relation: str,
    *,
    cosine: float | None = None,
    same_speaker: bool | None = None,
) -> Verdict | None:
    """What the rules say about two texts; None if they say nothing.

    Args:
        newer: The statement of the later time.
        older: The statement of the earlier time.
        relation: ``CONTRADICTS`` or ``SUPERSEDES``; for the latter, a verdict may also be that the older one is amended.
        cosine: Cosine of their vectors; None without vectors.
        same_speaker: Whether one person or agent made both; None if not known.
    """
    if relation == CONTRADICTS:
        return contradiction(newer.text, older.text)
    return update(newer, older, cosine=cosine, same_speaker=same_speaker)

"""PrecisionMemBench (``precision_dev``): 35 beliefs as entries, 77 cases, and which beliefs may come.

A belief is an entry of its scope's crew, one for each user, and of its user's agent: its text is the summary, its aliases
are in the payload, and ``supersedes`` says what it replaced. Pinned beliefs and open questions come by other channels in
that benchmark, so they are neither demanded nor counted; a superseded belief and another user's never may come.

Invariant: an entry that another supersedes is left out by ``inject``; here by the same rule, read from the entries.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.quality_index import Asked, Set, embedded_set, recorded
from crew_journal.services.index.scope import RecallScope, ScopeKind


@dataclass(frozen=True, slots=True)
class BeliefCase:
    """A case: which beliefs it is about.

    Attributes:
        asked: One search for each scope of the case: indices into the set's questions.
        wanted: Beliefs to find; none for a case that wants silence.
        neutral: Beliefs that other channels bring, left out of the count.
        wrong: Superseded beliefs, and those of other users.
    """

    asked: tuple[int, ...]
    wanted: frozenset[str]
    neutral: frozenset[str]
    wrong: frozenset[str]


async def beliefs(folder: Path, entry_type: str) -> tuple[Set, list[BeliefCase]]:
    """The beliefs as entries of a type, and the cases with a text to ask."""
    all_beliefs: list[dict[str, Any]] = json.loads((folder / "beliefs.json").read_text("utf-8"))
    cases: list[dict[str, Any]] = json.loads((folder / "cases.json").read_text("utf-8"))
    by_id = {belief["_id"]: belief for belief in all_beliefs}
    questions: list[Asked] = []
    belief_cases: list[BeliefCase] = []
    for case in cases:
        user = case.get("userId", "test-user")
        text, wanted = case["query"].strip(), case["expect"].get("relevantBeliefs", {}).get("shouldOnlyInclude")
        if not text or wanted is None:
            continue
        first = len(questions)
        for scope in case["scope"]:
            crew = _crew(user, scope)
            questions.append(
                Asked(text, RecallScope(ScopeKind.CREW_SHARED, None, crew), crew, "beliefs", frozenset(wanted))
            )
        neutral = frozenset(
            belief["_id"] for belief in all_beliefs if belief["pinned"] or belief["type"] == "open_question"
        )
        wrong = frozenset(
            name
            for name, belief in by_id.items()
            if belief["user_id"] != user or belief["epistemic_status"] == "superseded"
        )
        belief_cases.append(BeliefCase(tuple(range(first, len(questions))), frozenset(wanted), neutral, wrong))
    return await embedded_set(
        recorded([_entry(belief, by_id, entry_type) for belief in all_beliefs], "beliefs"), questions
    ), belief_cases


def _entry(belief: Mapping[str, Any], by_id: Mapping[str, Any], entry_type: str) -> dict[str, Any]:
    replaced = [name for name, other in by_id.items() if other["superseded_by"] == belief["_id"]]
    return {
        "id": belief["_id"],
        "agent_id": belief["user_id"],
        "crew_id": _crew(belief["user_id"], belief["scope"][0]),
        "ts": belief["created_at"],
        "entry_type": entry_type,
        "actor_type": "user",
        "actor_id": belief["user_id"],
        "summary": belief["content"],
        "payload": {"aliases": belief["aliases"]},
        "refs": {"episodic": True},
        "supersedes": replaced,
    }


def _crew(user: str, scope: str) -> str:
    return f"{user}-{scope}".replace(":", "-")

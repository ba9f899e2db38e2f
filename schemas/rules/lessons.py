"""The lessons from ends of missions and negative feedback, and the document of lessons (contract §12).

Invariant: pure; the text is YAML, and no text of a lesson can begin another one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..entry import ActorType, JournalEntry
from ..timestamps import format_ms
from .assembler import notice_of
from .render import one_line

MISSION: Final = "mission.status_change"
MISSION_OUTCOME: Final = "mission_outcome"
FEEDBACK: Final = "user.feedback"
NEGATIVE_LEARNING: Final = "negative_learning"
MAX_LESSONS: Final = 500
"""Lessons of a crew or agent that are kept; the one with the oldest ``captured_at`` is dropped first."""
OUTCOMES_SHOWN: Final = 10
"""Outcomes of missions in a lead's prompt."""
RULES_SHOWN: Final = 20
"""Learned rules in a prompt: promoted ones first, then the newest."""
RULES_LABEL: Final = "Learned rules (from recurring entries of the crew)"
OUTCOMES_LABEL: Final = "Mission outcomes (last 10)"
_KINDS: Final = {"COMPLETED": "positive", "DONE": "positive", "FAILED": "negative", "CANCELLED": "neutral"}
_VERDICTS: Final = ("rating", "sentiment", "verdict", "feedback")
_NEGATIVE: Final = frozenset({"negative", "bad", "down", "thumbs_down", "wrong", "unhelpful"})
_STATUS_FIELDS: Final = ("to", "status", "new_status")


@dataclass(frozen=True, slots=True)
class Lesson:
    """A lesson as it is shown; ``finding`` (``category/pattern``) is what the scanners block in its text."""

    lesson_id: str
    kind: str
    captured_ms: int
    source: str
    rule: str
    context: str
    finding: str | None = None


@dataclass(frozen=True, slots=True)
class LearnedRule:
    """A rule as it is shown."""

    rule_id: str
    pattern: str
    action: str
    confidence: float
    occurrences: int
    days: int
    promoted: bool
    finding: str | None = None


def mission_outcome(entry: JournalEntry) -> tuple[str, str, str] | None:
    """Mission, kind and new status of an entry that ends a mission; None for other entries."""
    if entry.entry_type != MISSION:
        return None
    status = _status_of(entry.payload)
    kind = _KINDS.get(status)
    mission = entry.mission_id or entry.payload.get("mission_id")
    if kind is None or not isinstance(mission, str) or not mission:
        return None
    return mission, kind, status


def negative_feedback(entry: JournalEntry) -> tuple[str, str] | None:
    """The correction and the subject of negative feedback; None for an entry that is not negative feedback of a person.

    It is negative if ``rating``, ``sentiment``, ``verdict`` or ``feedback`` says so, or ``helpful`` is the boolean
    false.
    """
    if entry.entry_type != FEEDBACK or entry.actor_type is not ActorType.USER:
        return None
    said = (entry.payload.get(name) for name in _VERDICTS)
    if entry.payload.get("helpful") is not False and not any(
        isinstance(one, str) and one.strip().casefold() in _NEGATIVE for one in said
    ):
        return None
    correction = entry.payload.get("correction")
    if isinstance(correction, str) and correction.strip():
        return " ".join(correction.split()), entry.summary
    return entry.summary, ""


def ended_well(payload: Mapping[str, Any]) -> bool:
    """Whether the payload of a ``mission.status_change`` says that the mission is completed."""
    return _KINDS.get(_status_of(payload)) == "positive"


def _status_of(payload: Mapping[str, Any]) -> str:
    said = next((payload[name] for name in _STATUS_FIELDS if name in payload), None)
    return said.strip().upper() if isinstance(said, str) else ""


def kept(lessons: Sequence[Lesson]) -> list[Lesson]:
    """The newest ``MAX_LESSONS``, in the order given."""
    if len(lessons) <= MAX_LESSONS:
        return list(lessons)
    order = sorted(range(len(lessons)), key=lambda at: (-lessons[at].captured_ms, -at))
    return [lessons[at] for at in sorted(order[:MAX_LESSONS])]


def as_yaml(lessons: Sequence[Lesson], *, whole: bool) -> str:
    """``lessons.md``: a YAML list; empty if there is none.

    Args:
        lessons: In the order of the text.
        whole: Whether text that the scanners block is shown; else a notice stands in its place.
    """
    return "".join(_item(lesson, whole) for lesson in lessons)


def rules_text(rules: Sequence[LearnedRule]) -> str:
    """Learned rules for a prompt, one line each."""
    return "".join(f"- {_rule_line(rule)}\n" for rule in rules)


def outcomes_text(lessons: Sequence[Lesson]) -> str:
    """Outcomes of missions for a prompt, one line each."""
    return "".join(f"- {format_ms(one.captured_ms)[:10]} {one.kind}: {_shown(one.rule, one)}\n" for one in lessons)


def _item(lesson: Lesson, whole: bool) -> str:
    rule, context = (
        (lesson.rule, lesson.context) if whole or lesson.finding is None else (_shown(lesson.rule, lesson), "")
    )
    captured_at = _quoted(format_ms(lesson.captured_ms))
    return (
        f"- id: {_quoted(lesson.lesson_id)}\n  kind: {lesson.kind}\n  captured_at: {captured_at}\n"
        f"  source: {lesson.source}\n  rule: {_quoted(rule)}\n  context: {_quoted(context)}\n"
    )


def _quoted(text: str) -> str:
    """A double-quoted scalar, which YAML reads as JSON does."""
    return json.dumps(text)


def _shown(text: str, of: Lesson) -> str:
    return one_line(text) if of.finding is None else notice_of(of.lesson_id, of.finding)


def _rule_line(rule: LearnedRule) -> str:
    if rule.finding is not None:
        return notice_of(rule.rule_id, rule.finding)
    action = f" → {one_line(rule.action)}" if rule.action else ""
    seen = f"seen {rule.occurrences} times on {rule.days} days, confidence {rule.confidence:.2f}"
    return f"{one_line(rule.pattern)}{action} ({seen}{', proven' if rule.promoted else ''}; {rule.rule_id})"

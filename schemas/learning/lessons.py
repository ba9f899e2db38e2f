"""The lessons that persons give, the outcomes of missions for a lead, learned rules, and their texts (contract §12).

Invariant: pure; the text is YAML, and the text of a lesson cannot start a new lesson in the YAML. Each text names its
authors. An agent's report that a mission ended is an outcome, not a lesson, because one agent's report must not
instruct other agents.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..core.entry import ActorType, JournalEntry
from ..core.timestamps import day_of, format_ms
from ..prompt.assembler import notice_of, one_line
from ..text.injection import finding_in
from ..text.secrets import find_secrets
from .agreement import fair

MISSION: Final = "mission.status_change"
MISSION_OUTCOME: Final = "mission_outcome"
FEEDBACK: Final = "user.feedback"
USER_FEEDBACK: Final = "user_feedback"
NEGATIVE_LEARNING: Final = "negative_learning"
MAX_LESSONS: Final = 500
"""Maximum number of lessons of a crew or agent; the lesson with the oldest ``captured_at`` is dropped first."""
OUTCOMES_SHOWN: Final = 10
"""Maximum number of mission outcomes in a lead's prompt."""
RULES_SHOWN: Final = 20
"""Maximum number of learned rules in a prompt: promoted rules first, then the newest."""
_AUTHORS_SHOWN: Final = 5
"""Maximum number of authors of a rule in a prompt."""
LESSONS_SHOWN: Final = 20
"""Maximum number of lessons in a prompt, the newest; of the crew and of the agent together."""
LESSONS_LABEL: Final = "Lessons (corrections by people)"
RULES_LABEL: Final = "Learned rules (from recurring entries of the crew)"
OUTCOMES_LABEL: Final = "Mission outcomes (last 10)"
_KINDS: Final = {"COMPLETED": "positive", "DONE": "positive", "FAILED": "negative", "CANCELLED": "neutral"}
_VERDICTS: Final = ("rating", "sentiment", "verdict", "feedback")
_NEGATIVE: Final = frozenset({"negative", "bad", "down", "thumbs_down", "wrong", "unhelpful"})
_STATUS_FIELDS: Final = ("to", "status", "new_status")


@dataclass(frozen=True, slots=True)
class Lesson:
    """A lesson for display; ``finding`` (``category/pattern``) is the reason for which the scanners block its text."""

    lesson_id: str
    kind: str
    captured_ms: int
    source: str
    rule: str
    context: str
    finding: str | None = None
    author: str = ""
    publisher: str = ""
    entry_id: str = ""


@dataclass(frozen=True, slots=True)
class LearnedRule:
    """A rule for display.

    Attributes:
        authors: Authors of the evidence (``schemas/core/principal.author_shown``).
        publishers: Publishers of the evidence.
        reviewed: Whether a person approved it.
        is_own: Whether the reader is the only publisher and the rule waits for a review.
        disputed: Whether one publisher reports that its action does not help.
        unhelpful: Whether it harmed more than it was used, or nobody used it.
    """

    rule_id: str
    pattern: str
    action: str
    confidence: float
    occurrences: int
    days: int
    promoted: bool
    finding: str | None = None
    authors: tuple[str, ...] = ()
    publishers: tuple[str, ...] = ()
    reviewed: bool = False
    is_own: bool = False
    disputed: bool = False
    unhelpful: bool = False


def rule_summary(pattern: str, authors: Sequence[str]) -> str:
    """The summary of a rule's entry; it names the authors, because recall shows it."""
    by = f" from {', '.join(authors[:_AUTHORS_SHOWN])}" if authors else ""
    return f"Learned{by}: {pattern}"


def rules_shown(rules: Sequence[LearnedRule], most: int) -> list[LearnedRule]:
    """At most ``most`` rules: first those that a person approved, then the others with a share for each publisher.

    Disputed and unhelpful rules come last.

    Args:
        rules: The best first.
        most: How many.
    """
    approved = [rule for rule in rules if rule.reviewed and not rule.unhelpful][:most]
    doubted = [rule for rule in rules if rule.unhelpful]
    others = sorted(
        (rule for rule in rules if not rule.reviewed and not rule.unhelpful), key=lambda rule: rule.disputed
    )
    shown = [*approved, *(others[at] for at in fair([rule.publishers for rule in others], most - len(approved)))]
    return [*shown, *(doubted[at] for at in fair([rule.publishers for rule in doubted], most - len(shown)))]


def outcomes_shown(outcomes: Sequence[Lesson], most: int) -> list[Lesson]:
    """At most ``most`` outcomes of missions, with a share for each publisher; the newest first."""
    newest = sorted(outcomes, key=lambda outcome: -outcome.captured_ms)
    return [newest[at] for at in sorted(fair([[outcome.publisher] for outcome in newest], most))]


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


def is_negative(payload: Mapping[str, Any]) -> bool:
    """Whether feedback is negative."""
    verdicts = (payload.get(name) for name in _VERDICTS)
    return payload.get("helpful") is False or any(
        isinstance(verdict, str) and verdict.strip().casefold() in _NEGATIVE for verdict in verdicts
    )


def negative_feedback(entry: JournalEntry) -> tuple[str, str] | None:
    """The correction and the subject of negative feedback; None for an entry that is not negative feedback of a person.

    It is negative if ``rating``, ``sentiment``, ``verdict`` or ``feedback`` says so, or ``helpful`` is the boolean
    false.
    """
    if entry.entry_type != FEEDBACK or entry.actor_type is not ActorType.USER:
        return None
    if not is_negative(entry.payload):
        return None
    correction = entry.payload.get("correction")
    if isinstance(correction, str) and correction.strip():
        return " ".join(correction.split()), entry.summary
    return entry.summary, ""


_OPENING: Final = (
    r"(?:(?:no|nope|please|and|so|but|ok|okay|remember|again|nein|bitte|und|also|non|s[’']il te plaît|et|por favor|y)"
    r"[,.!:]?\s+)*"
)
_STANDING: Final = (
    "always|never|from now on|in (?:the )?future|next time|whenever|immer|nie|niemals|ab jetzt|ab sofort|künftig|"
    "nächstes mal|toujours|jamais|désormais|dorénavant|la prochaine fois|siempre|nunca|jamás|a partir de ahora|"
    "de ahora en adelante|la próxima vez"
)
_DO: Final = (
    "use|run|call|write|take|put|send|ask|check|verwende|nimm|benutze|schreib|utilise|prends|écris|mets|usa|utiliza|"
    "escribe|pon"
)
_INSTRUCTION: Final = re.compile(
    rf"^{_OPENING}(?P<rule>(?:(?:{_STANDING})\b,? (?!mind\b|again\b|ever\b|the less\b|heard\b|seen\b)\S+ .{{4,280}}"
    r"|(?:do not|don[’']t|stop) (?!worry\b|know\b|think\b|mind\b|forget\b|you\b|it\b|that\b|this\b)\w+ (?:.{2,200} )?"
    r"(?:without|before|until|unless|directly|on|in|into|to|from|after|with) .{2,120}"
    rf"|(?:{_DO}) .{{2,80}} (?:instead of|rather than|and not|, not|statt|au lieu de|plutôt que|en vez de) .{{2,120}}))$",
    re.IGNORECASE,
)
_ONE_OFF: Final = re.compile(
    r"\b(?:today|tonight|tomorrow|this time|right now|for now|just this|heute|morgen|diesmal|aujourd[’']hui|demain|"
    r"cette fois|hoy|mañana|esta vez)\b|\?",
    re.IGNORECASE,
)
_SENTENCE: Final = re.compile(r"(?:[^.!?\n]|[.!?](?=[\w/@]))+[.!?]*")
SAID_MOST: Final = 3
"""Maximum number of lessons of one turn."""
_TURN_CHARS: Final = 2_000
"""Characters of a turn that are read; longer ones are pasted."""


def instructions_in(text: str) -> list[str]:
    """What a person tells an agent to do from now on: "Never push to main without a review", "use pnpm instead of npm".

    Questions, instructions for one occasion, and sentences with a credential or an injection are left out.
    """
    found = []
    for sentence in _SENTENCE.findall(text) if len(text) <= _TURN_CHARS else ():
        match = _INSTRUCTION.match(" ".join(sentence.split()))
        if match is None or _ONE_OFF.search(sentence) or find_secrets(sentence) or finding_in(sentence) is not None:
            continue
        rule = match["rule"].rstrip(".! ")
        found.append(rule[:1].upper() + rule[1:])
    return found[:SAID_MOST]


def said_id(instruction: str) -> str:
    """The id of the lesson of an instruction: the same words again are the same lesson."""
    normal = " ".join(re.findall(r"\w+", instruction.casefold()))
    return f"said_{hashlib.blake2b(normal.encode(), digest_size=8).hexdigest()}"


def ended_well(payload: Mapping[str, Any]) -> bool:
    """Whether the payload of a ``mission.status_change`` says that the mission is completed."""
    return _KINDS.get(_status_of(payload)) == "positive"


def _status_of(payload: Mapping[str, Any]) -> str:
    status = next((payload[name] for name in _STATUS_FIELDS if name in payload), None)
    return status.strip().upper() if isinstance(status, str) else ""


def kept(lessons: Sequence[Lesson]) -> list[Lesson]:
    """The newest ``MAX_LESSONS``, in the order given."""
    if len(lessons) <= MAX_LESSONS:
        return list(lessons)
    order = sorted(range(len(lessons)), key=lambda at: (-lessons[at].captured_ms, -at))
    return [lessons[at] for at in sorted(order[:MAX_LESSONS])]


def as_yaml(lessons: Sequence[Lesson], *, whole: bool) -> str:
    """``lessons.md``: a YAML list; empty if absent.

    Args:
        lessons: In the order of the text.
        whole: Whether text that the scanners block is shown; else a notice replaces it.
    """
    return "".join(_item(lesson, whole) for lesson in lessons)


def rules_text(rules: Sequence[LearnedRule]) -> str:
    """Learned rules for a prompt, one line each."""
    return "".join(f"- {_rule_line(rule)}\n" for rule in rules)


def lessons_text(lessons: Sequence[Lesson]) -> str:
    """Lessons for a prompt, the newest ``LESSONS_SHOWN``, one line each with author and source."""
    newest = sorted(lessons, key=lambda lesson: -lesson.captured_ms)[:LESSONS_SHOWN]
    return "".join(f"- {_lesson_line(lesson)}\n" for lesson in newest)


def _lesson_line(lesson: Lesson) -> str:
    if lesson.finding is not None:
        return _safe(lesson.rule, lesson)
    context = f" ({one_line(lesson.context)})" if lesson.context else ""
    by = f"{one_line(lesson.author)}, " if lesson.author else ""
    return f"{one_line(lesson.rule)}{context} [from {by}{day_of(lesson.captured_ms)}; {lesson.lesson_id}]"


def outcomes_text(lessons: Sequence[Lesson]) -> str:
    """Outcomes of missions for a prompt, one line each."""
    return "".join(
        f"- {day_of(item.captured_ms)} {item.kind}, reported by {one_line(item.author)}: {_safe(item.rule, item)}\n"
        for item in lessons
    )


def _item(lesson: Lesson, whole: bool) -> str:
    rule, context = (
        (lesson.rule, lesson.context) if whole or lesson.finding is None else (_safe(lesson.rule, lesson), "")
    )
    captured_at = _quoted(format_ms(lesson.captured_ms))
    return (
        f"- id: {_quoted(lesson.lesson_id)}\n  kind: {lesson.kind}\n  captured_at: {captured_at}\n"
        f"  source: {lesson.source}\n  author: {_quoted(lesson.author)}\n"
        f"  rule: {_quoted(rule)}\n  context: {_quoted(context)}\n"
    )


def _quoted(text: str) -> str:
    """A double-quoted scalar, which YAML reads as JSON does."""
    return json.dumps(text)


def _safe(text: str, lesson: Lesson) -> str:
    return one_line(text) if lesson.finding is None else notice_of(lesson.lesson_id, lesson.finding)


def _rule_line(rule: LearnedRule) -> str:
    if rule.finding is not None:
        return notice_of(rule.rule_id, rule.finding)
    action = f" → {one_line(rule.action)}" if rule.action not in ("", rule.pattern) else ""
    days = "1 day" if rule.days == 1 else f"{rule.days} days"
    seen = f"seen {rule.occurrences} times on {days}, confidence {rule.confidence:.2f}"
    marks = {
        "disputed": rule.disputed,
        "did not help": rule.unhelpful,
        "proven": rule.promoted,
        "approved by a person": rule.reviewed,
    }
    how = ", ".join([seen, *(mark for mark, is_set in marks.items() if is_set)])
    authors = ", ".join(map(one_line, rule.authors[:_AUTHORS_SHOWN]))
    more = len(rule.authors) - _AUTHORS_SHOWN
    if rule.is_own:
        authors = "your own entries alone, not reviewed"
    by = f"[from {authors}{f' and {more} more' if more > 0 else ''}] " if authors else ""
    return f"{by}{one_line(rule.pattern)}{action} ({how}; {rule.rule_id})"


# The procedure that is written for an approved skill.


_KEY_CHARS: Final = 48
_EVIDENCE_SHOWN: Final = 20
"""Maximum number of ids of entries in the text; a procedure has at most 32,000 bytes."""


def skill_key(rule_id: str, pattern: str) -> str:
    """The key of the procedure: words of the pattern and a digest of the rule's id."""
    words = re.sub(r"[^a-z0-9]+", "-", pattern.lower())[:_KEY_CHARS].strip("-")
    return f"{words or 'skill'}-{hashlib.blake2b(rule_id.encode(), digest_size=4).hexdigest()}"


def skill_text(rule_id: str, pattern: str, action: str, days: int, evidence: Sequence[str]) -> str:
    """The text of the procedure."""
    action_line = f"{one_line(action)}\n\n" if action else ""
    evidence_shown = ", ".join(evidence[:_EVIDENCE_SHOWN]) + (", …" if len(evidence) > _EVIDENCE_SHOWN else "")
    return (
        f"# {one_line(pattern)}\n\n{action_line}"
        f"Seen {len(evidence)} times on {days} days. Learned rule: {rule_id}. Evidence: {evidence_shown}.\n"
    )


def procedure_text(title: str, steps: Sequence[str], days: int, evidence: Sequence[str]) -> str:
    """The text of a procedure that runs repeated."""
    lines = "".join(f"{at}. {one_line(step)}\n" for at, step in enumerate(steps, 1))
    runs = ", ".join(evidence[:_EVIDENCE_SHOWN]) + (", …" if len(evidence) > _EVIDENCE_SHOWN else "")
    return f"# {one_line(title)}\n\n{lines}\nSteps of {len(evidence)} runs that completed, on {days} days: {runs}.\n"

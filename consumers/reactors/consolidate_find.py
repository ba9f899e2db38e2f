"""Sorts the findings of a consolidation: new rules, rules that were found again, rules that proved useful.

Invariant: pure; a rule that is known by its evidence or its pattern is not learned again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from Stemmer import Stemmer

from ...schemas.events.learning import RuleLearned, RulePromoted
from ...schemas.events.proposals import RuleProposed
from ...schemas.ids import derived_id
from ...schemas.rules.consolidation import REPEAT_DAYS, Usefulness, is_promoted, is_skill, normalised, score
from ...schemas.rules.recurrence import Occurrence, recurrences, terms_of
from ...schemas.rules.text import Analyzer
from ...schemas.timestamps import DAY_MS
from ..prompts.consolidation import ProposedRules, cited
from ..reacting.sweeping import Tick
from .consolidate_reads import Candidate, KnownRule, Search

_ACTIONS: Final = ("resolution", "fix", "recommendation", "answer", "reason")
"""Fields of a payload that say what to do, the best first."""
_TEXT_CHARS: Final = 500
"""Characters of a pattern or action."""
_SAME_EVIDENCE: Final = 0.5
"""Share of the smaller evidence from which two findings are the same."""


@dataclass(frozen=True, slots=True)
class Group:
    """Entries that suggest a rule; ``name`` is stable for the same evidence."""

    name: str
    evidence: tuple[str, ...]
    pattern: str
    action: str
    confidence: float


@dataclass(frozen=True, slots=True)
class Learned:
    """New rules with the name of the group of each, and the ids of rules that were found again."""

    rules: tuple[RuleLearned, ...]
    names: tuple[str, ...]
    confirmed: tuple[str, ...]


def recurring_groups(candidates: Sequence[Candidate]) -> list[Group]:
    """Groups of candidates that share most of their words, the largest first."""
    by_id = {one.entry_id: one for one in candidates}
    analyzer = Analyzer(Stemmer)
    seen = [Occurrence(one.entry_id, one.ts_ms // DAY_MS, terms_of(analyzer, one.summary)) for one in candidates]
    return [
        Group(
            found.typical,
            found.evidence,
            " ".join(by_id[found.typical].summary.split())[:_TEXT_CHARS],
            _action([by_id[entry_id] for entry_id in found.evidence]),
            found.confidence,
        )
        for found in recurrences(seen)
    ]


def proposed_groups(answer: ProposedRules, candidates: Sequence[Candidate]) -> list[Group]:
    """The rules of a model's answer that count, in its order."""
    groups = []
    for rule in cited(answer, len(candidates)):
        evidence = tuple(candidates[at].entry_id for at in rule.evidence)
        name = hashlib.blake2b("/".join(sorted(evidence)).encode(), digest_size=16).hexdigest()
        groups.append(Group(name, evidence, rule.pattern, rule.action, rule.confidence))
    return groups


def learned_of(
    crew_id: str,
    tick: Tick,
    groups: Sequence[Group],
    candidates: Sequence[Candidate],
    known: Sequence[KnownRule],
    model: str | None,
) -> Learned:
    """Which groups are new rules and which were known; a group without a new entry is neither."""
    by_id = {one.entry_id: one for one in candidates}
    own = {rule_id(tick, crew_id, group.name) for group in groups}  # a run that is repeated finds what it recorded
    known = [rule for rule in known if rule.rule_id not in own]
    recent = {normalised(one.pattern) for one in known if one.learned_ms > tick.due_ms - REPEAT_DAYS * DAY_MS}
    rules: list[RuleLearned] = []
    names: list[str] = []
    confirmed: list[str] = []
    for group in groups:
        members = [by_id[entry_id] for entry_id in group.evidence]
        if not any(one.is_new for one in members):
            continue
        same = next((rule for rule in reversed(known) if _is_same(rule.evidence, group)), None)
        if same is not None:
            if not same.is_retracted and any(one.seq > same.last_seq for one in members):
                confirmed.append(same.rule_id)
        elif normalised(group.pattern) not in recent and not any(_is_same(rule.evidence, group) for rule in rules):
            recent.add(normalised(group.pattern))
            names.append(group.name)
            rules.append(
                RuleLearned(
                    crew_id=crew_id,
                    pattern=group.pattern,
                    action=group.action,
                    evidence=group.evidence,
                    confidence=group.confidence,
                    days=len({one.ts_ms // DAY_MS for one in members}),
                    model=model,
                )
            )
    return Learned(tuple(rules), tuple(names), tuple(dict.fromkeys(confirmed)))


def rule_id(tick: Tick, crew_id: str, name: str) -> str:
    """The id of the rule, or proposal, that a run records for a group."""
    return derived_id("consolidate", 1, f"{tick.workspace_id}/{tick.entry_id}", f"{crew_id}/rule/{name}")


def _is_same(evidence: Collection[str], group: Group) -> bool:
    shared = len(set(evidence).intersection(group.evidence))
    return shared >= _SAME_EVIDENCE * min(len(evidence), len(group.evidence))


def _action(members: Sequence[Candidate]) -> str:
    """The action that the newest entry of the evidence names; empty if none does."""
    for name in _ACTIONS:
        for one in reversed(members):
            said = one.payload.get(name)
            if isinstance(said, str) and said.strip():
                return " ".join(said.split())[:_TEXT_CHARS]
    return ""


def usefulness_of(rule: KnownRule, types: dict[str, str], searches: Sequence[Search], tick: Tick) -> Usefulness:
    """How useful a rule has been; ``types`` are those of the entries of its evidence."""
    about = {*rule.evidence, rule.rule_id}
    found = [one for one in searches if not about.isdisjoint(one.hits)]
    last = max((one.ts_ms for one in found), default=None)
    return Usefulness(
        relevance=rule.confidence,
        recalls=len(found),
        queries=len({one.query for one in found}),
        days_since=None if last is None else (tick.due_ms - last) / DAY_MS,
        runs=rule.runs,
        evidence=len(rule.evidence),
        types=len({types[entry_id] for entry_id in rule.evidence if entry_id in types}),
    )


def promotion_of(rule: KnownRule, measured: Usefulness) -> RulePromoted | None:
    """The promotion of a rule that has proved useful and is not promoted yet."""
    if rule.is_promoted or rule.is_retracted or not is_promoted(measured):
        return None
    return RulePromoted(
        rule_id=rule.rule_id, score=round(score(measured), 4), recalls=measured.recalls, queries=measured.queries
    )


def skill_of(crew_id: str, rule: KnownRule, measured: Usefulness, staged: Collection[str]) -> RuleProposed | None:
    """The proposal of a rule as a skill, unless it was proposed before (``staged``)."""
    if rule.is_retracted or rule.rule_id in staged or not is_skill(measured):
        return None
    return RuleProposed(
        crew_id=crew_id,
        pattern=rule.pattern,
        action=rule.action,
        evidence=rule.evidence,
        confidence=rule.confidence,
        days=rule.days,
        skill_of=rule.rule_id,
        score=round(score(measured), 4),
        recalls=measured.recalls,
    )

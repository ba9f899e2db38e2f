"""Sorts the findings of a consolidation: new rules, proposals, rules that were found again, rules that proved useful.

Invariant: pure; a rule that is known by its evidence or its pattern is not learned again. A finding becomes a rule only if
two publishers said it, received on two days; any other waits for a person. Its words are those that its publishers share.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from Stemmer import Stemmer

from ...schemas.events.learning import RuleLearned, RulePromoted
from ...schemas.events.proposals import RuleProposed
from ...schemas.ids import derived_id
from ...schemas.rules.agreement import MIN_PUBLISHERS, Saying, agreed_action, is_shared, shared_wording
from ...schemas.rules.consolidation import (
    AUTHORS_NAMED,
    REPEAT_DAYS,
    WAITING_MAX,
    Usefulness,
    is_promoted,
    is_skill,
    normalised,
    score,
)
from ...schemas.rules.documents import finding_in
from ...schemas.rules.publishers import UNRECORDED, author_shown
from ...schemas.rules.recurrence import Occurrence, recurrences, terms_of
from ...schemas.rules.secrets import find_secrets
from ...schemas.rules.text import Analyzer, tokens_of
from ...schemas.timestamps import DAY_MS
from ..prompts.consolidation import MIN_EVIDENCE, ProposedRules, cited
from ..reacting.sweeping import Tick
from .consolidate_reads import KnownRule, LearningEntry, Search

VERSION: Final = 2
"""Of the reactor: version 1 learned what one publisher alone said."""
_TEXT_CHARS: Final = 500
"""Characters of a pattern or action."""
_SAME_EVIDENCE: Final = 0.5
"""Share of the smaller evidence from which two findings are the same."""
_RESEMBLES: Final = 0.5
"""Share of the terms of a model's pattern that its evidence must have."""
_PUBLISHERS_KEPT: Final = 500


@dataclass(frozen=True, slots=True)
class Group:
    """Entries that suggest a rule.

    Attributes:
        name: Stable for the same evidence.
        is_vouched: Whether more than one publisher used its words; a model may have taken them from one entry.
    """

    name: str
    evidence: tuple[str, ...]
    pattern: str
    action: str
    confidence: float
    is_vouched: bool = True


@dataclass(frozen=True, slots=True)
class NewRules:
    """New rules and proposals by the name of the group of each, and the ids of rules that were found again."""

    rules: dict[str, RuleLearned]
    proposals: dict[str, RuleProposed]
    confirmed: tuple[str, ...]


def recurring_groups(candidates: Sequence[LearningEntry]) -> list[Group]:
    """Groups of candidates that share most of their words, the largest first."""
    by_id = {candidate.entry_id: candidate for candidate in candidates}
    analyzer = Analyzer(Stemmer)
    seen = [
        Occurrence(
            candidate.entry_id,
            candidate.ts_ms // DAY_MS,
            terms_of(analyzer, candidate.summary),
            candidate.received_ms // DAY_MS,
        )
        for candidate in candidates
    ]
    groups = []
    for recurrence in recurrences(seen):
        members = [by_id[entry_id] for entry_id in recurrence.evidence]
        sayings = [Saying(member.publisher, member.summary) for member in members]
        pattern = shared_wording(sayings, recurrence.evidence.index(recurrence.typical))[:_TEXT_CHARS]
        actions = [Saying(member.publisher, member.action) for member in members if member.action]
        action = agreed_action(actions, len({member.publisher for member in members}))[:_TEXT_CHARS]
        if pattern and _is_clean(pattern, action):
            groups.append(Group(recurrence.typical, recurrence.evidence, pattern, action, recurrence.confidence))
    return groups


def proposed_groups(answer: ProposedRules, candidates: Sequence[LearningEntry]) -> list[Group]:
    """The rules of a model's answer that count, in its order.

    A rule must resemble its evidence: each entry of it has a term of the pattern, and all together have most of them.
    """
    analyzer = Analyzer(Stemmer)
    groups = []
    for rule in cited(answer, len(candidates)):
        terms = terms_of(analyzer, rule.pattern)
        shared_terms = [(candidates[at], terms_of(analyzer, candidates[at].summary) & terms) for at in rule.evidence]
        evidence = tuple(candidate.entry_id for candidate, shared in shared_terms if shared)
        covered = frozenset[int]().union(*(shared for _, shared in shared_terms))
        if (
            len(evidence) < MIN_EVIDENCE
            or len(covered) < _RESEMBLES * len(terms)
            or find_secrets(rule.pattern + rule.action)
        ):
            continue
        name = hashlib.blake2b("/".join(sorted(evidence)).encode(), digest_size=16).hexdigest()
        vouched = _is_vouched(analyzer, f"{rule.pattern} {rule.action}", candidates)
        groups.append(Group(name, evidence, rule.pattern, rule.action, rule.confidence, vouched))
    return groups


def _is_clean(pattern: str, action: str) -> bool:
    """Whether a text that was put together from several entries has nothing that the scanners block."""
    text = f"{pattern}\n{action}"
    return finding_in(text) is None and not find_secrets(text)


def _is_vouched(analyzer: Analyzer, text: str, candidates: Sequence[LearningEntry]) -> bool:
    """Whether a model's text has no word that it can only have from one publisher: one that no other entry uses.

    Words of no entry are the model's own; those with digits are not, because a model makes up no account number.
    """
    used: dict[int | str, set[str]] = {}
    for candidate in candidates:
        for word in _content(analyzer, f"{candidate.summary} {candidate.action}"):
            used.setdefault(word, set()).add(candidate.publisher)
    for word in _content(analyzer, text):
        by = used.get(word)
        if (by is None and isinstance(word, str)) or (by is not None and len(by) < MIN_PUBLISHERS):
            return False
    return True


def _content(analyzer: Analyzer, text: str) -> set[int | str]:
    """The terms of a text, and its words with digits as they are."""
    return {*terms_of(analyzer, text), *(word for word in tokens_of(text) if not word.isalpha())}


def learned_of(
    crew_id: str,
    tick: Tick,
    groups: Sequence[Group],
    candidates: Sequence[LearningEntry],
    known: Sequence[KnownRule],
    model: str | None,
    *,
    reviewed: bool,
) -> NewRules:
    """Which groups are new rules or proposals, and which were known; a group without a new entry is neither.

    A proposal that waits for a second publisher does not keep a finding of two publishers from being learned.

    Args:
        crew_id: The crew.
        tick: The run.
        groups: What the run found.
        candidates: The entries of their evidence.
        known: Rules and proposals that exist.
        model: The model that worded the groups; None if they were found by recurrence.
        reviewed: Whether all rules of the workspace wait for a person.
    """
    by_id = {candidate.entry_id: candidate for candidate in candidates}
    own_ids = {rule_id(tick, crew_id, group.name) for group in groups}  # a run that is repeated finds what it recorded
    known = [rule for rule in known if rule.rule_id not in own_ids]
    newest = [rule for rule in known if rule.learned_ms > tick.due_ms - REPEAT_DAYS * DAY_MS]
    waiting = Counter(name for rule in known if rule.waits for name in rule.publishers or (UNRECORDED,))
    rules: dict[str, RuleLearned] = {}
    proposals: dict[str, RuleProposed] = {}
    confirmed: list[str] = []
    for group in groups:
        members = [by_id[entry_id] for entry_id in group.evidence]
        if not any(member.is_new for member in members):
            continue
        publishers = tuple(dict.fromkeys(member.publisher for member in members))
        days = len({member.received_ms // DAY_MS for member in members})
        shared = not reviewed and group.is_vouched and is_shared(publishers, days)
        same = next(
            (rule for rule in reversed(known) if _is_same(rule.evidence, group) and not (shared and rule.waits)), None
        )
        if same is not None:
            if not same.is_retracted and any(member.seq > same.last_seq for member in members):
                confirmed.append(same.rule_id)
            continue
        recorded: list[RuleLearned | RuleProposed] = [*rules.values(), *proposals.values()]
        patterns = {normalised(rule.pattern) for rule in newest if not (shared and rule.waits)}
        patterns |= {normalised(rule.pattern) for rule in recorded}
        if normalised(group.pattern) in patterns or any(_is_same(rule.evidence, group) for rule in recorded):
            continue
        fields = {
            "crew_id": crew_id,
            "pattern": group.pattern,
            "action": group.action,
            "evidence": group.evidence,
            "confidence": group.confidence,
            "days": days,
            "model": model,
            "publishers": publishers[:_PUBLISHERS_KEPT],
            "authors": authors_of(members),
        }
        if shared:
            settled = next((rule for rule in reversed(known) if rule.waits and _is_same(rule.evidence, group)), None)
            rules[group.name] = RuleLearned.model_validate(
                {**fields, "settles": None if settled is None else settled.rule_id}
            )
        elif reviewed or min(waiting[name] for name in publishers) < WAITING_MAX:
            proposals[group.name] = RuleProposed.model_validate(fields)
            waiting.update(publishers)
    return NewRules(rules, proposals, tuple(dict.fromkeys(confirmed)))


def authors_of(members: Sequence[LearningEntry]) -> tuple[str, ...]:
    """The authors of entries as they are shown, those of most entries first."""
    counts = Counter(author_shown(member.publisher, member.agent_id) for member in members)
    return tuple(sorted(counts, key=lambda name: (-counts[name], name))[:AUTHORS_NAMED])


def rule_id(tick: Tick, crew_id: str, name: str) -> str:
    """The id of the rule, or proposal, that a run records for a group."""
    return derived_id("consolidate", VERSION, f"{tick.workspace_id}/{tick.entry_id}", f"{crew_id}/rule/{name}")


def _is_same(evidence: Collection[str], group: Group) -> bool:
    shared = len(set(evidence).intersection(group.evidence))
    return shared >= _SAME_EVIDENCE * min(len(evidence), len(group.evidence))


def usefulness_of(rule: KnownRule, types: dict[str, str], searches: Sequence[Search], tick: Tick) -> Usefulness:
    """How useful a rule has been; ``types`` are those of the entries of its evidence."""
    about = {*rule.evidence, rule.rule_id}
    matching = [search for search in searches if not about.isdisjoint(search.hits)]
    last = max((search.ts_ms for search in matching), default=None)
    return Usefulness(
        relevance=rule.confidence,
        recalls=len(matching),
        queries=len({search.query for search in matching}),
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
        publishers=rule.publishers,
        skill_of=rule.rule_id,
        score=round(score(measured), 4),
        recalls=measured.recalls,
    )

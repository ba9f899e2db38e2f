"""Learns rules from what recurs among a crew's entries when a consolidation is due, and promotes rules that proved useful.

It also promotes what recurs in daily logs and archives old logs (``consolidate_logs``).

A chat model words the rules if there is one; without one, or when it fails, entries whose summaries share much of their
words are rules.

Invariant: a rule is an entry whose evidence exists, each entry once, from two publishers on two days of receipt; everything
else is proposed to a person. Ids follow from the tick and the evidence, so a run that is repeated records nothing twice. No
run reads what runs record.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import ClassVar, Final, Unpack

import structlog
from Stemmer import Stemmer

from ...schemas.access.tables import AGENTS_PROJECTION, NUDGES_PROJECTION
from ...schemas.core.entry import Priority, Severity
from ...schemas.core.errors import EmbedderError
from ...schemas.core.ids import derived_id
from ...schemas.core.payload import ControlPayload
from ...schemas.core.principal import UNRECORDED, author_shown
from ...schemas.core.timestamps import DAY_MS, format_ms
from ...schemas.documents.events import encode_document
from ...schemas.documents.tables import DOCUMENTS_PROJECTION
from ...schemas.entries.tables import ENTRIES_PROJECTION
from ...schemas.erasure.tables import ERASURES_PROJECTION
from ...schemas.learning.agreement import (
    Keys,
    Saying,
    agreed_action,
    is_shared,
    may_refute,
    other_cases,
    pattern_of,
    refuted,
    same_action,
)
from ...schemas.learning.consolidation import (
    AUTHORS_NAMED,
    HISTORY_DAYS,
    PATIENCE_DAYS,
    REPEAT_DAYS,
    RETIRE_DAYS,
    SMOOTHING,
    WAITING_MAX,
    Occurrence,
    RuleEffect,
    Usefulness,
    expires_ms,
    is_promoted,
    is_skill,
    is_unhelpful,
    is_worthwhile,
    keys_by_word,
    normalised,
    recurrences,
    score,
    state_of,
    teaches,
    terms_of,
)
from ...schemas.learning.events import MemoryConsolidated, RuleChanged, RuleLearned, RulePromoted, RuleProposed
from ...schemas.learning.lessons import FEEDBACK, rule_summary
from ...schemas.learning.procedures import MIN_RUNS, is_known, procedures_in
from ...schemas.learning.tables import LEARNING_PROJECTION
from ...schemas.lineage.tables import LINEAGE_PROJECTION
from ...schemas.models.chat import ChatError, Prompt
from ...schemas.models.tables import VECTORS_PROJECTION, active_in, read_active_models
from ...schemas.recall.tables import RECEIPTS_PROJECTION
from ...schemas.relations.rules import EVIDENCE_REF
from ...schemas.standing.tables import STANDINGS_PROJECTION
from ...schemas.sweeps.rules import CONSOLIDATION, Sweep
from ...schemas.text.analyzer import Analyzer, tokens_of
from ...schemas.text.injection import finding_in
from ...schemas.text.secrets import find_secrets
from ..reacting.pull_reactor import FactFields
from ..reacting.sweeping import SweepReactor, Swept, Tick
from .daily_logs import LogsFound, consolidated_logs
from .prompt import MIN_EVIDENCE, Cited, ProposedRules, cited, question
from .reads import (
    Floats,
    KnownRule,
    LearningEntry,
    Search,
    candidates_of,
    cosines_of,
    crews_of,
    effects_of,
    last_run_of,
    learning_settings,
    lessons_of,
    looks_back_to,
    normalised_rows,
    procedures_of,
    proposals_of,
    rules_of,
    runs_of,
    searches_of,
    staged_of,
    types_of,
    vectors_of,
)

# Sorts the findings of a consolidation: new rules, proposals, rules that were found again, rules that proved useful.


VERSION: Final = 2
"""Of the reactor: version 1 learned what one publisher alone said."""
_TEXT_CHARS: Final = 500
"""Characters of a pattern or action."""
_SAME_EVIDENCE: Final = 0.5
"""Share of the smaller evidence from which two findings are the same."""
_RESEMBLES: Final = 0.5
"""Share of the terms of a model's pattern that its evidence must have."""
_NAMED: Final = 0.2
"""Share of the terms of a model's rule, its action included, that its evidence must have however near it is: made-up rules
about other things are near two random entries once in eighty times (600, MiniLM), and then have no word of theirs."""
_NEAREST: Final = 0.9
"""Share of a crew's candidates that are less near to a model's rule than its evidence. Without shared words, a wrong entry
passes once in ten; two of them once in a hundred."""
_ALONE: Final = 0.25
"""Share of the words of a model's pattern that one publisher alone may use if the evidence agrees on the action."""
_SAME_RULE: Final = 0.85
"""Cosine from which two rules are rewordings of each other."""
_PUBLISHERS_KEPT: Final = 500
_EVIDENCE_KEPT: Final = 500
_REFUTING_NAMED: Final = 50


@dataclass(frozen=True, slots=True)
class Group:
    """Entries that suggest a rule.

    Attributes:
        name: Stable for the same evidence.
        is_vouched: Whether more than one publisher used its words; a model may have taken them from one entry.
        same_as: The known rule that it words again, according to a model; empty otherwise.
    """

    name: str
    evidence: tuple[str, ...]
    pattern: str
    action: str
    confidence: float
    is_vouched: bool = True
    same_as: str = ""


@dataclass(frozen=True, slots=True)
class NewRules:
    """New rules and proposals by the name of the group of each, the ids of rules that were found again, and changes."""

    rules: dict[str, RuleLearned]
    proposals: dict[str, RuleProposed]
    confirmed: tuple[str, ...]
    changes: tuple[RuleChanged, ...] = ()


def recurring_groups(
    candidates: Sequence[LearningEntry], cosines: Sequence[Sequence[float]] | None = None
) -> list[Group]:
    """Groups of candidates that say the same, or name the same remedy, and teach something; the largest first.

    Args:
        candidates: What rules are learned from.
        cosines: See ``recurrences``.
    """
    by_id = {candidate.entry_id: candidate for candidate in candidates}
    analyzer = Analyzer(Stemmer)
    keys = keys_by_word(analyzer)
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
    for recurrence in recurrences(seen, cosines, same=_with_same_action(candidates, keys)):
        members = [by_id[entry_id] for entry_id in recurrence.evidence]
        action = _remedy(members, keys)[:_TEXT_CHARS]
        members = _of_one_case(members, action, recurrence.typical, keys)
        if not teaches([member.is_telling for member in members], action):
            continue
        sayings = [Saying(member.publisher, member.summary) for member in members]
        typical = next(at for at, member in enumerate(members) if member.entry_id == recurrence.typical)
        pattern = pattern_of(sayings, typical, keys, action)[:_TEXT_CHARS]
        if pattern and _is_clean(pattern, action):
            evidence = tuple(member.entry_id for member in members)
            groups.append(Group(recurrence.typical, evidence, pattern, action, recurrence.confidence))
    return groups


def _of_one_case(members: Sequence[LearningEntry], action: str, typical: str, keys: Keys) -> list[LearningEntry]:
    """The members without those that say something else in the same words, unless they name the same action."""
    others = other_cases([Saying(member.publisher, member.summary) for member in members], keys)
    return [
        member
        for at, member in enumerate(members)
        if at not in others or member.entry_id == typical or (action and same_action(member.action, action, keys))
    ]


def _with_same_action(candidates: Sequence[LearningEntry], keys: Keys) -> list[tuple[int, int]]:
    """Pairs of candidates that name the same specific action; each with the first one that names it."""
    first: list[int] = []
    pairs = []
    for at, candidate in enumerate(candidates):
        if not candidate.action:
            continue
        known = next(
            (
                one
                for one in first
                if same_action(
                    candidates[one].action, candidate.action, keys, (candidates[one].summary, candidate.summary)
                )
            ),
            None,
        )
        if known is None:
            first.append(at)
        else:
            pairs.append((known, at))
    return pairs


def _remedy(members: Sequence[LearningEntry], keys: Keys) -> str:
    """The action on which the members agree, without actions that as many others refute as name them."""
    actions = [Saying(member.publisher, member.action) for member in members if member.action]
    standing = [
        action
        for action in actions
        if len(refuted(action, actions, keys) - {action.publisher})
        < len({other.publisher for other in actions if other.text == action.text})
    ]
    return agreed_action(standing, len({member.publisher for member in members}), keys)


def proposed_groups(
    answer: ProposedRules, candidates: Sequence[LearningEntry], near: Sequence[Sequence[float]] | None = None
) -> list[Group]:
    """The rules of a model's answer that count, in its order.

    A rule must resemble its evidence: each entry of it has a term of the rule, or is nearer to it than nine of ten
    candidates; and together they have half of the pattern's terms, or are that near on average.

    Args:
        answer: The answer.
        candidates: The entries that the model was given.
        near: For each rule of ``cited`` its cosine to each candidate, NaN for one without a vector; None without vectors.
    """
    analyzer = Analyzer(Stemmer)
    groups = []
    for place, rule in enumerate(cited(answer, len(candidates))):
        terms = terms_of(analyzer, rule.pattern)
        said = {at: terms_of(analyzer, f"{candidates[at].summary} {candidates[at].action}") for at in rule.evidence}
        of_rule = terms | terms_of(analyzer, rule.action)
        cosines = [] if near is None else near[place]
        known = sorted(cosine for cosine in cosines if cosine == cosine)
        nearest = known[int(_NEAREST * len(known))] if known else inf
        kept = [at for at in rule.evidence if said[at] & of_rule or (at < len(cosines) and cosines[at] >= nearest)]
        covered = frozenset[int]().union(*(said[at] & terms for at in kept))
        resembling = [cosines[at] for at in kept if at < len(cosines) and cosines[at] == cosines[at]]
        is_near = len(resembling) >= MIN_EVIDENCE and sum(resembling) >= nearest * len(resembling)
        named = frozenset[int]().union(*(said[at] & of_rule for at in kept))
        if (
            len(kept) < MIN_EVIDENCE
            or len(named) < _NAMED * len(of_rule)
            or not (len(covered) >= _RESEMBLES * len(terms) or is_near)
            or find_secrets(rule.pattern + rule.action)
        ):
            continue
        evidence = tuple(candidates[at].entry_id for at in kept)
        name = hashlib.blake2b("/".join(sorted(evidence)).encode(), digest_size=16).hexdigest()
        remedy = _remedy([candidates[at] for at in kept], keys_by_word(analyzer))
        vouched = _is_vouched(analyzer, rule.pattern, rule.action, candidates, remedy)
        groups.append(Group(name, evidence, rule.pattern, rule.action, rule.confidence, vouched, rule.same_as))
    return groups


def question_about(
    candidates: Sequence[LearningEntry], known: Sequence[KnownRule], lessons: Sequence[str] = ()
) -> Prompt:
    """What a model is asked about the candidates of a crew."""
    return question(
        [(one.entry_type, one.summary, one.action, format_ms(one.received_ms)[:10]) for one in candidates],
        [(rule.rule_id, rule.pattern, rule.action) for rule in known if not rule.is_retracted],
        lessons,
    )


def texts_of(answer: ProposedRules, candidates: Sequence[LearningEntry], known: Sequence[KnownRule]) -> list[str]:
    """The texts whose vectors ``worded_groups`` needs: of the rules of an answer, then of those that are known."""
    rules: list[Cited | KnownRule] = [*cited(answer, len(candidates)), *_standing(known)]
    return [f"{rule.pattern} {rule.action}" for rule in rules]


def _standing(known: Sequence[KnownRule]) -> list[KnownRule]:
    return [rule for rule in known if not rule.is_retracted]


def worded_groups(
    answer: ProposedRules,
    candidates: Sequence[LearningEntry],
    known: Sequence[KnownRule],
    stored: Floats | None,
    worded: Floats | None,
) -> list[Group]:
    """The groups of a model's answer; a group whose rule words a known one again is marked with its id.

    Args:
        answer: The answer.
        candidates: The entries that the model was given.
        known: Rules and proposals that exist.
        stored: (n, d) L2-normalised, of the candidates; None without vectors.
        worded: (m, d) L2-normalised, of ``texts_of``; None without vectors.
    """
    if stored is None or worded is None or worded.shape[1] != stored.shape[1]:
        return proposed_groups(answer, candidates)
    proposed, standing = cited(answer, len(candidates)), _standing(known)
    groups = proposed_groups(answer, candidates, (worded[: len(proposed)] @ stored.T).tolist())
    same = worded[: len(proposed)] @ worded[len(proposed) :].T
    at_pattern = {rule.pattern: at for at, rule in enumerate(proposed)}
    return [
        group
        if group.same_as or not standing or (row := same[at_pattern[group.pattern]]).max() < _SAME_RULE
        else replace(group, same_as=standing[int(row.argmax())].rule_id)
        for group in groups
    ]


def _is_clean(pattern: str, action: str) -> bool:
    """Whether a text that was put together from several entries has nothing that the scanners block."""
    text = f"{pattern}\n{action}"
    return finding_in(text) is None and not find_secrets(text)


def _is_vouched(
    analyzer: Analyzer, pattern: str, action: str, candidates: Sequence[LearningEntry], remedy: str
) -> bool:
    """Whether a model's text has no word that it can only have from one publisher: one that no other entry uses.

    Words of no entry are the model's own; those with digits are not, because a model makes up no account number. If the
    action is the remedy on which the evidence agrees, a quarter of the pattern's words may come from one publisher.
    """
    used: dict[int | str, set[str]] = {}
    for candidate in candidates:
        for word in _content(analyzer, f"{candidate.summary} {candidate.action}"):
            used.setdefault(word, set()).add(candidate.publisher)

    def alone(text: str) -> set[int | str]:
        """The words that only one publisher uses, and those with digits that no entry has."""
        words = _content(analyzer, text)
        return {word for word in words if len(used.get(word, "")) == 1 or (word not in used and isinstance(word, str))}

    agreed = bool(remedy and action) and same_action(remedy, action, keys_by_word(analyzer))
    if not agreed:
        return not alone(f"{pattern} {action}")
    single = alone(pattern)
    return not any(isinstance(word, str) for word in single) and len(single) <= _ALONE * len(
        _content(analyzer, pattern)
    )


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
    keys = keys_by_word(Analyzer(Stemmer))
    own_ids = {rule_id(tick, crew_id, group.name) for group in groups}  # a run that is repeated finds what it recorded
    known = [rule for rule in known if rule.rule_id not in own_ids]
    newest = [
        rule for rule in known if rule.state != "contradicted" and rule.learned_ms > tick.due_ms - REPEAT_DAYS * DAY_MS
    ]
    waiting = Counter(name for rule in known if rule.waits for name in rule.publishers or (UNRECORDED,))
    rules: dict[str, RuleLearned] = {}
    proposals: dict[str, RuleProposed] = {}
    confirmed: list[str] = []
    changes: list[RuleChanged] = []
    for group in groups:
        members = [by_id[entry_id] for entry_id in group.evidence]
        if not any(member.is_new for member in members):
            continue
        publishers = tuple(dict.fromkeys(member.publisher for member in members))
        days = len({member.received_ms // DAY_MS for member in members})
        shared = not reviewed and group.is_vouched and is_shared(publishers, days)
        same = next(
            (
                rule
                for rule in reversed(known)
                if _is_known(rule, group, keys) and not (shared and rule.waits) and not _is_overtaken(rule, group, keys)
            ),
            None,
        )
        if same is not None:
            members = [member for member in members if not _refutes(member, same, keys)]
            if not same.is_retracted and any(member.seq > same.last_seq for member in members):
                confirmed.append(same.rule_id)
                if same.runs and same.state != "contradicted":
                    changes.append(_confirmation(same, members))
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
    changed_once = {change.rule_id: change for change in changes}
    return NewRules(rules, proposals, tuple(dict.fromkeys(confirmed)), tuple(changed_once.values()))


def authors_of(members: Sequence[LearningEntry]) -> tuple[str, ...]:
    """The authors of entries as they are shown, those of most entries first."""
    counts = Counter(author_shown(member.publisher, member.agent_id) for member in members)
    return tuple(sorted(counts, key=lambda name: (-counts[name], name))[:AUTHORS_NAMED])


def rule_id(tick: Tick, crew_id: str, name: str) -> str:
    """The id of the rule, or proposal, that a run records for a group."""
    return derived_id("consolidate", VERSION, f"{tick.workspace_id}/{tick.entry_id}", f"{crew_id}/rule/{name}")


def _is_known(rule: KnownRule, group: Group, keys: Keys) -> bool:
    """Whether a group shows a known rule again: by its evidence, its remedy, its wording, or according to a model."""
    return (
        rule.rule_id == group.same_as
        or _is_same(rule.evidence, group)
        or (
            bool(rule.action and group.action)
            and same_action(rule.action, group.action, keys, (rule.pattern, group.pattern))
        )
        or (group.action in ("", rule.action) and same_action(rule.pattern, group.pattern, keys))
    )


def _is_overtaken(rule: KnownRule, group: Group, keys: Keys) -> bool:
    """Whether a rule's remedy was refuted and a group names another one."""
    return rule.state == "contradicted" and bool(group.action) and not same_action(rule.action, group.action, keys)


def _confirmation(rule: KnownRule, members: Sequence[LearningEntry]) -> RuleChanged:
    """A rule with the evidence that a run added."""
    known = frozenset(rule.evidence)
    new = [member for member in members if member.entry_id not in known]
    days = {member.received_ms // DAY_MS for member in new} - {rule.seen_ms // DAY_MS}
    return RuleChanged(
        rule_id=rule.rule_id,
        state="unhelpful" if rule.state == "unhelpful" else "disputed" if rule.state == "disputed" else "confirmed",
        evidence=tuple(dict.fromkeys([*rule.evidence, *(member.entry_id for member in new)]))[-_EVIDENCE_KEPT:],
        days=rule.days + len(days),
        publishers=tuple(dict.fromkeys([*rule.publishers, *(member.publisher for member in members)]))[
            :_PUBLISHERS_KEPT
        ],
        authors=authors_of(members),
        seen_ms=max(rule.seen_ms, *(member.received_ms for member in members)),
    )


def ended_of(
    tick: Tick,
    known: Sequence[KnownRule],
    candidates: Sequence[LearningEntry],
    searches: Sequence[Search],
    changed: Mapping[str, RuleChanged] | None = None,
    effects: Mapping[str, RuleEffect] | None = None,
) -> tuple[RuleChanged, ...]:
    """Rules that are refuted, unhelpful, or expired at the time of the run, and rules that no longer are.

    Reports that a remedy does not help no longer count if more publishers have named it again since, unless one is of a
    person.

    Args:
        tick: The run.
        known: Rules and proposals that exist.
        candidates: The entries that the run reads.
        searches: Recorded searches of the last days.
        changed: The rules that the run confirmed, by id; they do not expire.
        effects: What became of the rules in prompts, by id.
    """
    keys = keys_by_word(Analyzer(Stemmer))
    changed = changed or {}
    found = []
    for known_rule in known:
        if not known_rule.runs or known_rule.is_retracted or known_rule.state == "contradicted":
            continue
        rule = _changed(known_rule, changed.get(known_rule.rule_id))
        refuting = [
            candidate
            for candidate in candidates
            if candidate.received_ms >= rule.learned_ms and _refutes(candidate, rule, keys)
        ]
        if refuting and _is_settled(rule, refuting, candidates, keys):
            refuting = []
        about = {*rule.evidence, rule.rule_id}
        searched = max((search.ts_ms for search in searches if not about.isdisjoint(search.hits)), default=0)
        first = min((one.received_ms for one in candidates if one.entry_id in about), default=rule.learned_ms)
        is_expired = (
            rule.state != "expired"
            and not rule.is_reviewed
            and rule.rule_id not in changed
            and expires_ms(min(first, rule.learned_ms), rule.seen_ms, rule.days, searched) < tick.due_ms
        )
        effect = (effects or {}).get(rule.rule_id, RuleEffect())
        unhelpful = rule.state != "expired" and is_unhelpful(
            effect, max(rule.learned_ms, rule.seen_ms, searched), tick.due_ms
        )
        state = state_of(
            {candidate.publisher for candidate in refuting},
            by_person=any(_is_of_person(candidate) for candidate in refuting),
            is_expired=is_expired,
            is_unhelpful=unhelpful,
        )
        if state is None and (rule.state == "unhelpful" or (rule.state == "disputed" and rule.rule_id in changed)):
            state = "confirmed"
        if state is not None and state != rule.state:
            found.append(
                RuleChanged(
                    rule_id=rule.rule_id,
                    state=state,
                    evidence=rule.evidence[-_EVIDENCE_KEPT:],
                    days=rule.days,
                    publishers=rule.publishers,
                    seen_ms=rule.seen_ms,
                    by=(*(candidate.entry_id for candidate in refuting), *effect.by)[:_REFUTING_NAMED],
                    given=effect.given,
                    used=len(effect.used_by),
                    harmed=len(effect.harmed),
                )
            )
    return tuple(found)


def _changed(rule: KnownRule, change: RuleChanged | None) -> KnownRule:
    """A rule after what the run recorded of it."""
    if change is None:
        return rule
    return replace(
        rule,
        state=change.state,
        evidence=change.evidence,
        days=change.days,
        publishers=change.publishers,
        seen_ms=change.seen_ms,
    )


def _refutes(entry: LearningEntry, rule: KnownRule, keys: Keys) -> bool:
    """Whether the action of an entry says that the action of a rule does not help."""
    return (
        bool(rule.action)
        and may_refute(entry.action)
        and bool(refuted(Saying("", rule.action), [Saying(entry.publisher, entry.action)], keys))
    )


def _is_settled(
    rule: KnownRule, refuting: Sequence[LearningEntry], candidates: Sequence[LearningEntry], keys: Keys
) -> bool:
    """Whether more publishers named the action again than say that it does not help, all of them later."""
    if any(_is_of_person(entry) for entry in refuting):
        return False
    last_ms = max(entry.received_ms for entry in refuting)
    against = {entry.publisher for entry in refuting}
    again = {
        entry.publisher
        for entry in candidates
        if entry.received_ms > last_ms and entry.action and _is_same_remedy(rule.action, entry.action, keys)
    }
    return len(again - against) > len(against)


def _is_same_remedy(action: str, other: str, keys: Keys) -> bool:
    return action == other or same_action(action, other, keys)


def _is_of_person(candidate: LearningEntry) -> bool:
    """Whether an entry is feedback that no agent's token published."""
    return candidate.entry_type == FEEDBACK and not candidate.publisher.startswith("agent:")


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


def retirement_of(
    crew_id: str, rule: KnownRule, effect: RuleEffect, staged: Collection[tuple[str, str]], due_ms: int
) -> RuleProposed | None:
    """The proposal to retire a rule that is unhelpful for some days, unless it was proposed before (``staged``)."""
    if (
        rule.is_retracted
        or rule.state != "unhelpful"
        or due_ms - rule.changed_ms < RETIRE_DAYS * DAY_MS
        or (rule.rule_id, "retirement") in staged
        or not is_unhelpful(effect, max(rule.learned_ms, rule.seen_ms), due_ms)
    ):
        return None
    return RuleProposed(
        crew_id=crew_id,
        pattern=rule.pattern,
        action=rule.action,
        evidence=rule.evidence[-_EVIDENCE_KEPT:],
        confidence=rule.confidence,
        days=rule.days,
        publishers=rule.publishers,
        skill_of=rule.rule_id,
        retires=True,
    )


def skill_of(
    crew_id: str, rule: KnownRule, measured: Usefulness, staged: Collection[tuple[str, str]]
) -> RuleProposed | None:
    """The proposal of a rule as a skill, unless it was proposed before (``staged``)."""
    if rule.is_retracted or (rule.rule_id, "skill") in staged or not is_skill(measured):
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


CREWS_AT_ONCE: Final = 4
"""Crews of a workspace that are consolidated at once: a model answers after seconds, and its server queues further
requests."""
WORKSPACES_AT_ONCE: Final = 4
"""Workspaces that are consolidated at once, for the same reason."""
_MODEL_CHARS: Final = 96
"""Characters of a model's name in a rule."""
_DURABLE: Final = "sweep-consolidate-v1"
"""That of version 1, so that the ticks which it has handled do not come again."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Read:
    """What a run reads of a crew."""

    candidates: Sequence[LearningEntry]
    known: Sequence[KnownRule]
    new: int
    worthwhile: bool


@dataclass(frozen=True, slots=True)
class Proven:
    """Rules that proved useful: promotions, and proposals of the most useful ones as skills; proposals to retire rules."""

    promoted: tuple[RulePromoted, ...]
    skills: tuple[RuleProposed, ...]
    retired: tuple[RuleProposed, ...] = ()


@dataclass(frozen=True, slots=True)
class CrewRun:
    """What a run found for a crew; ``model`` is the one that worded the rules, ``error`` why it did not."""

    read: Read
    learned: NewRules
    proven: Proven
    model: str | None
    error: str | None


class ConsolidateReactor(SweepReactor):
    """Consumes ``sweep.ticked`` of the consolidation; ``chat`` words the rules."""

    name: ClassVar[str] = "consolidate"
    version: ClassVar[int] = VERSION
    sweep: ClassVar[Sweep] = CONSOLIDATION
    uses_chat = True
    max_ack_pending = WORKSPACES_AT_ONCE
    needs: ClassVar[tuple[str, ...]] = (
        ENTRIES_PROJECTION,
        VECTORS_PROJECTION,
        STANDINGS_PROJECTION,
        RECEIPTS_PROJECTION,
        LEARNING_PROJECTION,
        NUDGES_PROJECTION,
        AGENTS_PROJECTION,
        DOCUMENTS_PROJECTION,
        ERASURES_PROJECTION,
        LINEAGE_PROJECTION,
    )

    def _durable_name(self) -> str:
        return _DURABLE

    async def work(self, tick: Tick) -> Swept:
        """Look at each crew with new entries, or at the one that was asked for."""
        since_ms = tick.since_ms if tick.since_ms is not None else tick.due_ms - self.sweep.schedule.period_ms
        searches = await asyncio.to_thread(searches_of, self._views, tick)
        turns = asyncio.Semaphore(1 if self._chat is None else CREWS_AT_ONCE)

        async def consolidate(crew_id: str) -> CrewRun:
            async with turns:
                result = await self._find(tick, crew_id, since_ms, searches, reviewed=reviewed, chats=chats)
                await self._record(tick, crew_id, result)
                return result

        reviewed, chats = await asyncio.to_thread(learning_settings, self._views, tick.workspace_id)
        logs = LogsFound() if reviewed else await self._consolidate_logs(tick, since_ms)
        since_ms = await asyncio.to_thread(looks_back_to, self._views, tick, since_ms)
        heard_ms = since_ms if tick.since_ms is not None else since_ms - PATIENCE_DAYS * DAY_MS
        crews = await asyncio.to_thread(crews_of, self._views, tick, heard_ms, chats=chats)
        results = await asyncio.gather(*map(consolidate, crews))
        counts = {
            "crews": len(results),
            "skipped": sum(not result.read.worthwhile for result in results),
            "candidates": sum(result.read.new for result in results),
            "learned": sum(len(result.learned.rules) for result in results),
            "proposed": sum(len(result.learned.proposals) for result in results),
            "confirmed": sum(len(result.learned.confirmed) for result in results),
            "promoted": sum(len(result.proven.promoted) for result in results),
            "ended": sum(change.state != "confirmed" for result in results for change in result.learned.changes),
            "retirements": sum(len(result.proven.retired) for result in results),
            "skills": sum(len(result.proven.skills) for result in results),
            "notes_promoted": logs.promoted,
            "notes_left": logs.left,
            "logs_archived": logs.archived,
        }
        return Swept(counts, next((result.error for result in results if result.error), None))

    async def _consolidate_logs(self, tick: Tick, since_ms: int) -> LogsFound:
        logs = await asyncio.to_thread(consolidated_logs, self._views, tick, since_ms)
        for write in logs.writes:
            await self.publish(encode_document(write))
        return logs

    async def _find(
        self, tick: Tick, crew_id: str, since_ms: int, searches: Sequence[Search], *, reviewed: bool, chats: bool
    ) -> CrewRun:
        read = await asyncio.to_thread(self._read, tick, crew_id, since_ms, chats)
        groups, model, error = [], None, None
        if read.worthwhile and self._chat is not None:
            lessons = await asyncio.to_thread(lessons_of, self._views, tick, crew_id)
            prompt = question_about(read.candidates, read.known, lessons)
            try:
                answer = await self._chat.complete(
                    tick.workspace_id, self.sweep.name, prompt, ProposedRules, crew_id=crew_id
                )
                groups = await self._worded(tick, answer, read)
                model = self._chat.model_id[:_MODEL_CHARS]
            except ChatError as failure:
                _log.warning("consolidate.no_model", model=self._chat.model_id, error=type(failure).__name__)
                error = f"rules were found by recurrence: {failure}"
        if read.worthwhile and model is None:
            groups = await asyncio.to_thread(self._recurring, tick, read.candidates)
        learned = learned_of(crew_id, tick, groups, read.candidates, read.known, model, reviewed=reviewed)
        procedures = await asyncio.to_thread(self._procedures, tick, crew_id, since_ms)
        effects = await asyncio.to_thread(effects_of, self._views, tick, crew_id, read.known)
        proven = await asyncio.to_thread(self._proven, tick, crew_id, read.known, searches, effects)
        confirmed = {change.rule_id: change for change in learned.changes}
        ended = await asyncio.to_thread(ended_of, tick, read.known, read.candidates, searches, confirmed, effects)
        proven = replace(proven, skills=(*proven.skills, *procedures))
        return CrewRun(read, replace(learned, changes=(*learned.changes, *ended)), proven, model, error)

    async def _worded(self, tick: Tick, answer: ProposedRules, read: Read) -> list[Group]:
        stored = await asyncio.to_thread(vectors_of, self._views, tick, read.candidates)
        texts = texts_of(answer, read.candidates, read.known)
        worded = None if stored is None else await self._embedded(tick, texts)
        return worded_groups(answer, read.candidates, read.known, stored, worded)

    async def _embedded(self, tick: Tick, texts: Sequence[str]) -> Floats | None:
        """Normalised vectors of texts by the workspace's active model; None if nothing here runs it."""
        active = active_in(await asyncio.to_thread(read_active_models, self._views), tick.workspace_id)
        embedder = None if active is None else self._context.embedder_for(active) or self._context.embedder
        if embedder is None or embedder.model_id != active or not texts:
            return None
        try:
            vectors = await embedder.embed_documents(texts)
        except EmbedderError as error:
            _log.warning("consolidate.no_vectors", error=type(error).__name__)
            return None
        return normalised_rows(vectors)

    def _recurring(self, tick: Tick, candidates: Sequence[LearningEntry]) -> list[Group]:
        return recurring_groups(candidates, cosines_of(self._views, tick, candidates))

    def _read(self, tick: Tick, crew_id: str, since_ms: int, chats: bool) -> Read:  # of to_thread
        last_ms = None
        if tick.since_ms is None:
            last_ms = last_run_of(self._views, tick, crew_id)
            since_ms = min(since_ms, tick.due_ms - HISTORY_DAYS * DAY_MS if last_ms is None else last_ms)
        candidates = candidates_of(self._views, tick, crew_id, since_ms, chats=chats)
        new = [candidate for candidate in candidates if candidate.is_new]
        worthwhile = is_worthwhile(len(new), permanent=any(candidate.is_permanent for candidate in new))
        if not worthwhile and tick.since_ms is None and new:
            waiting_since = min(candidate.received_ms for candidate in new) if last_ms is None else last_ms
            worthwhile = tick.due_ms - waiting_since >= PATIENCE_DAYS * DAY_MS
        known = proposals_of(self._views, tick, crew_id) + rules_of(self._views, tick, crew_id)
        return Read(candidates, known, len(new), worthwhile)

    def _procedures(self, tick: Tick, crew_id: str, since_ms: int) -> list[RuleProposed]:
        """Proposals of the procedures that recent runs repeated and that were not proposed before."""
        runs = runs_of(self._views, tick, crew_id, since_ms)
        if len(runs) < MIN_RUNS:
            return []
        keys = keys_by_word(Analyzer(Stemmer))
        known = procedures_of(self._views, tick, crew_id)
        return [
            RuleProposed(
                crew_id=crew_id,
                pattern=procedure.title,
                evidence=procedure.evidence,
                confidence=round(len(procedure.evidence) / (len(procedure.evidence) + SMOOTHING), 4),
                days=procedure.days,
                publishers=procedure.publishers[:_PUBLISHERS_KEPT],
                authors=tuple(name.removeprefix("agent:") for name in procedure.publishers[:AUTHORS_NAMED]),
                skill_of=f"steps-{procedure.name}",
                steps=procedure.steps,
            )
            for procedure in procedures_in(runs, keys)
            if not is_known(procedure, known, keys) and _is_clean("\n".join(procedure.steps), procedure.title)
        ]

    def _proven(
        self,
        tick: Tick,
        crew_id: str,
        known: Sequence[KnownRule],
        searches: Sequence[Search],
        effects: Mapping[str, RuleEffect],
    ) -> Proven:
        evidence = sorted({entry_id for rule in known for entry_id in rule.evidence})
        types = types_of(self._views, tick.workspace_id, evidence)
        staged = staged_of(self._views, tick, crew_id)
        by_id = {rule.rule_id: rule for rule in known}
        measured = [(rule, usefulness_of(rule, types, searches, tick)) for rule in known]
        return Proven(
            promoted=tuple(filter(None, (promotion_of(rule, usefulness) for rule, usefulness in measured))),
            skills=tuple(filter(None, (skill_of(crew_id, rule, usefulness, staged) for rule, usefulness in measured))),
            retired=tuple(
                proposal
                for rule_id, effect in effects.items()
                if (proposal := retirement_of(crew_id, by_id[rule_id], effect, staged, tick.due_ms)) is not None
            ),
        )

    async def _record(self, tick: Tick, crew_id: str, result: CrewRun) -> None:
        rules: list[str] = []
        proposals: list[str] = []
        evidence: list[str] = []
        for name, rule in result.learned.rules.items():
            rule_entry = await self._record_of_crew(
                tick,
                crew_id,
                rule,
                f"rule/{name}",
                rule_summary(rule.pattern, rule.authors),
                severity=Severity.NOTICE,
                priority=Priority.HIGH,
                refs=_of_evidence(rule.evidence),
            )
            rules.append(rule_entry)
            evidence += rule.evidence
        for name, proposal in result.learned.proposals.items():
            summary = f"Proposed: {proposal.pattern}"
            refs = _of_evidence(proposal.evidence)
            proposals.append(await self._record_of_crew(tick, crew_id, proposal, f"rule/{name}", summary, refs=refs))
            evidence += proposal.evidence
        for promotion in result.proven.promoted:
            summary = f"The rule {promotion.rule_id} proved useful: score {promotion.score:.2f}"
            await self._record_of_crew(tick, crew_id, promotion, f"promoted/{promotion.rule_id}", summary)
        for change in result.learned.changes:
            summary = f"The rule {change.rule_id} is {change.state}"
            refs = {"derived_from": list(dict.fromkeys([change.rule_id, *change.by]))}
            await self._record_of_crew(tick, crew_id, change, f"{change.state}/{change.rule_id}", summary, refs=refs)
        for skill in result.proven.skills:
            source = list(skill.evidence) if skill.steps else [str(skill.skill_of)]
            refs = {EVIDENCE_REF: list(skill.evidence), "derived_from": source}
            summary = f"Proposed as a skill: {skill.pattern}"
            await self._record_of_crew(tick, crew_id, skill, f"skill/{skill.skill_of}", summary, refs=refs)
        for retired in result.proven.retired:
            refs = {EVIDENCE_REF: list(retired.evidence), "derived_from": [str(retired.skill_of)]}
            summary = f"Proposed to retire: {retired.pattern}"
            await self._record_of_crew(tick, crew_id, retired, f"retirement/{retired.skill_of}", summary, refs=refs)
        if not result.read.worthwhile:
            return
        run = MemoryConsolidated(
            crew_id=crew_id,
            rules_count=len(rules),
            rules=tuple(rules),
            proposed=tuple(proposals),
            confirmed=result.learned.confirmed,
            promoted=tuple(rule.rule_id for rule in result.proven.promoted),
            candidates=len(result.read.candidates),
            entries_scanned=result.read.new,
            model=result.model,
        )
        counts = f"{len(rules)} rules learned, {len(proposals)} proposed"
        summary = f"Consolidation of crew {crew_id}: {counts} from {result.read.new} entries"
        severity = Severity.NOTICE if rules or proposals else Severity.INFO
        refs = {"source_entry_ids": list(dict.fromkeys(evidence))}
        await self._record_of_crew(tick, crew_id, run, "run", summary, severity=severity, refs=refs)

    async def _record_of_crew(
        self,
        tick: Tick,
        crew: str,
        payload: ControlPayload,
        name: str,
        summary: str,
        **fields: Unpack[FactFields],
    ) -> str:
        fields |= {"ts_ms": tick.due_ms, "crew_id": crew}
        return await self.record_of(tick, payload, f"{crew}/{name}", summary, **fields)


def _of_evidence(evidence: tuple[str, ...]) -> dict[str, list[str]]:
    return {EVIDENCE_REF: list(evidence), "source_entry_ids": list(evidence)}


REACTORS: Final = {"consolidate": ConsolidateReactor.create}

"""The candidates of a consolidation, the conditions of a run, and the score of a rule (contract §12).

Invariant: pure; entries that a run records are never candidates of a later run.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import heapify, heappop, heappush
from importlib import resources
from math import log
from typing import Any, Final

from ..core.entry import ActorType, Severity
from ..core.timestamps import DAY_MS
from ..models.rules import REMEMBERED
from ..text.analyzer import Analyzer, fold, tokens_of
from ..text.injection import finding_in
from ..text.secrets import find_secrets
from .agreement import Keys
from .events import MemoryConsolidated, RuleLearned, RuleState
from .lessons import FEEDBACK, is_negative

# Whether a text only reports success or routine, so that its repetition teaches nothing (DESIGN §13).


VERSION: Final = 2
_WORD: Final = re.compile(r"\w+(?:['’]\w+)*")
_PREFIX: Final = "*"


@dataclass(frozen=True, slots=True)
class _RoutineWords:
    """Whole words, and beginnings of words."""

    whole: frozenset[str]
    prefixes: tuple[str, ...]

    def have(self, word: str) -> bool:
        return word in self.whole or word.startswith(self.prefixes)


def is_routine(text: str) -> bool:
    """Whether a text only reports success or routine."""
    success, trouble, _, _, why, report, *_ = _lists()
    left, is_good = _without_absences(text)
    if any(trouble.have(word) for word in left):
        return False
    if left and report.have(left[0]) and not any(why.have(word) for word in left):
        return True
    return is_good or any(success.have(word) for word in left)


def says_why(text: str) -> bool:
    """Whether a text names a cause, a condition, a preference or an instruction, so that a reader can act differently."""
    why = _lists()[4]
    return any(why.have(word) for word in _without_absences(text)[0])


def states_fact(text: str) -> bool:
    """Whether a text says what is the case, names a problem, or tells the reader to do something.

    Reports of what was done, of today, or of a measured state ("Merged four branches", "Waiting room at 40 percent")
    have none of the words.
    """
    _, trouble, _, _, _, _, holds, passing, instructs = _lists()
    left, _ = _without_absences(text)
    if any(trouble.have(word) for word in left):
        return True
    if left and instructs.have(left[0]):
        return True
    return any(holds.have(word) for word in left) and not any(passing.have(word) for word in left)


def _without_absences(text: str) -> tuple[list[str], bool]:
    """The words of a text without phrases like "no errors" or "no action needed", and whether it has such a phrase."""
    _, _, absent, absent_what, *_ = _lists()
    left: list[str] = []
    is_good = is_absence = False
    for word in _WORD.findall(fold(text)):
        if absent_what.have(word) and (is_absence or (left and absent.have(left[-1]))):
            if not is_absence:
                left.pop()
            is_good = is_absence = True
        else:
            is_absence = False
            left.append(word)
    return left, is_good


@cache
def _lists() -> tuple[_RoutineWords, ...]:
    """The lists of the file, in the order of ``names``."""
    data = tomllib.loads(resources.files(__package__).joinpath("routine.toml").read_text("utf-8"))
    names = ("success", "trouble", "absent", "absent_what", "why", "report", "holds", "passing", "instructs")
    return tuple(_words(data[name]) for name in names)


def _words(by_language: dict[str, str]) -> _RoutineWords:
    words = [fold(word) for text in by_language.values() for word in text.split()]
    return _RoutineWords(
        frozenset(word for word in words if not word.endswith(_PREFIX)),
        tuple(sorted({word.removesuffix(_PREFIX) for word in words if word.endswith(_PREFIX)})),
    )


SOURCES: Final = (
    "peer.escalation",
    "summary.generated",
    "keeper.decision",
    "mission.status_change",
    "eval.regression_detected",
    REMEMBERED,
    "run.failed",
    FEEDBACK,
)
"""Types that rules are learned from: from ``keeper.decision`` only denials, from ``mission.status_change`` only entries
of severity warn and error, because a mission that goes on or ends well teaches nothing; from ``user.feedback`` only
corrections.
"""
CHAT: Final = "chat."
MESSAGE: Final = "message.posted"
"""With the prefix ``CHAT``, the types of conversations: rules are learned from them where ``learn_from_chats`` is set."""
_ONESELF: Final = re.compile(
    r"\b(?:I|me|my|mine|myself|ich|mir|mich|mein\w*|je|j|moi|mon|ma|mes|yo|mi|mis|mío|mía|conmigo)\b", re.IGNORECASE
)
"""A turn about oneself: what it says is a matter of operator models, which need the person's consent."""
TELLING: Final = frozenset({"keeper.decision", "eval.regression_detected", "run.failed", FEEDBACK})
"""Types whose repetition teaches something without a remedy: a denial, a failure, a correction. What an agent remembered on
purpose does if it states a fact, a problem or an instruction, but not if it reports what was done or measured. Entries of
other types must name a cause, a condition or a remedy."""
TELLING_SHARE: Final = 1 / 3
"""Minimum share of a group's entries, and at least two, that are ``telling``, unless the group has a remedy: of the
wordings of one problem, about half name the cause."""
DECISION: Final = "keeper.decision"
MISSION: Final = "mission.status_change"
ACTIONS: Final = ("resolution", "fix", "recommendation", "correction", "answer", "remedy", "workaround", "reason")
"""Payload fields that say what to do, in order of preference."""
UNSHARED_BY: Final = "consolidate@1"
"""The actor of rules from the time before publishers were counted. A single agent may have caused such a rule, so the
rule waits for a person's review, and recall does not find it.
"""
OWN_OUTPUT: Final = ("rule.", "lesson.", "proposal.", MemoryConsolidated.ENTRY_TYPE)
"""Prefixes of types that no run reads, even if an entry is permanent."""
MIN_ENTRIES: Final = 10
"""A run is skipped if fewer candidates lie within the look-back, unless one of its entries is permanent. The look-back of
a run on schedule begins at the last run of the crew that was not skipped, so that a small crew's candidates add up."""
PATIENCE_DAYS: Final = 1
"""Days after which such a run is not skipped if it has any new candidate: three agents report less than ten things a day."""
MAX_ENTRIES: Final = 500
"""Maximum number of candidates of one run; the newest count."""
HISTORY_DAYS: Final = 30
"""Occurrences count if they are at most this many days older than the run; the six hours between runs rarely span two
days.
"""
REPEAT_DAYS: Final = 7
"""Days for which a pattern is not learned again, even with other evidence."""
WAITING_MAX: Final = 20
"""Maximum number of pending proposals of one publisher, so that one agent cannot fill a person's list."""
AUTHORS_NAMED: Final = 10
"""Maximum number of authors that a rule names; authors of most of its evidence come first."""
RECALL_DAYS: Final = 7
"""Searches of this many last days count for a promotion."""

_SEVERE: Final = frozenset({Severity.WARN.value, Severity.ERROR.value})
_DENIED: Final = frozenset({"deny", "denied", "reject", "rejected"})
_VERDICTS: Final = ("decision", "outcome", "result")

WEIGHTS: Final = {
    "relevance": 0.30,
    "frequency": 0.24,
    "diversity": 0.15,
    "recency": 0.15,
    "consolidation": 0.10,
    "richness": 0.06,
}
_FULL_RECALLS, _FULL_QUERIES, _FULL_RUNS, _FULL_EVIDENCE, _FULL_TYPES = 30, 10, 5, 8, 4
"""Values at which a part of the score reaches 1."""
_HALF_LIFE_DAYS: Final = 14.0
PROMOTE_SCORE: Final = 0.80
PROMOTE_RECALLS: Final = 3
PROMOTE_QUERIES: Final = 3
SKILL_SCORE: Final = 0.85
SKILL_RECALLS: Final = 10


def is_denial(payload: Mapping[str, Any]) -> bool:
    """Whether a decision denies: it says so in decision, outcome or result, or ``allowed`` is the boolean false."""
    verdicts = (payload.get(name) for name in _VERDICTS)
    return payload.get("allowed") is False or any(
        isinstance(verdict, str) and verdict.strip().casefold() in _DENIED for verdict in verdicts
    )


def is_chat(entry_type: str) -> bool:
    """Whether an entry is a turn of a conversation."""
    return entry_type.startswith(CHAT) or entry_type == MESSAGE


def is_candidate(
    entry_type: str, severity: str, payload: Mapping[str, Any], *, permanent: bool, chats: bool = False
) -> bool:
    """Whether rules are learned from an entry.

    A permanent entry counts regardless of its type, except for types that runs record.

    Args:
        entry_type: Its type.
        severity: Its severity.
        payload: Its payload.
        permanent: Whether its priority is permanent.
        chats: Whether the workspace allows to learn from conversations.
    """
    if entry_type.startswith(OWN_OUTPUT):
        return False
    if permanent:
        return True
    if entry_type == DECISION:
        return is_denial(payload)
    if entry_type == FEEDBACK:
        return bool(action_in(payload))
    if is_chat(entry_type):
        return chats
    return entry_type in SOURCES and (entry_type != MISSION or severity in _SEVERE)


def action_in(payload: Mapping[str, Any]) -> str:
    """What an entry says to do, on one line; empty if it says nothing."""
    actions = (payload.get(name) for name in ACTIONS)
    return next((" ".join(action.split()) for action in actions if isinstance(action, str) and action.strip()), "")


def is_fit(summary: str, action: str, *, permanent: bool, is_turn: bool = False) -> bool:
    """Whether a candidate's text may become a rule: no injection, no credential, and not only success or routine.

    Text of a permanent entry may be routine: a person has marked it. A turn of a conversation must say why, and neither
    ask nor speak of its author.
    """
    text = f"{summary}\n{action}"
    if finding_in(text) is not None or find_secrets(text):
        return False
    if is_turn and not permanent:
        return says_why(summary) and "?" not in summary and _ONESELF.search(summary) is None
    return permanent or bool(action) or not is_routine(summary)


def is_telling(entry_type: str, summary: str, *, permanent: bool) -> bool:
    """Whether the repetition of an entry teaches something even if no entry names a remedy."""
    if permanent or entry_type in TELLING or says_why(summary):
        return True
    return entry_type == REMEMBERED and states_fact(summary)


def teaches(telling: Sequence[bool], action: str) -> bool:
    """Whether a group of entries has something to do differently: a remedy, or enough entries that are ``telling``."""
    return bool(action) or sum(telling) >= max(2, TELLING_SHARE * len(telling))


def is_unshared_rule(entry_type: str, actor_type: str, actor_id: str | None) -> bool:
    """Whether an entry is a learned rule that only a person's review may show to other agents."""
    return entry_type == RuleLearned.ENTRY_TYPE and actor_type == ActorType.SYSTEM and actor_id == UNSHARED_BY


def is_worthwhile(candidates: int, *, permanent: bool) -> bool:
    """Whether this number of candidates within the look-back is enough for a run."""
    return candidates >= MIN_ENTRIES or permanent


def normalised(pattern: str) -> str:
    """A pattern in lower case with single blanks: patterns with the same form are equal."""
    return " ".join(pattern.lower().split())


EXPIRES_AFTER: Final = 6
"""Periods for which a rule may be neither seen nor searched before it expires; its period is the mean time between days on
which it was seen."""
EXPIRES_DAYS: Final = (60, 365)
"""Bounds of that time, days: what is seen daily may pause for two months, what is seen once a year is not kept for six."""


def expires_ms(first_ms: int, seen_ms: int, days: int, searched_ms: int) -> int:
    """When a rule expires, milliseconds since the epoch.

    Args:
        first_ms: When its oldest evidence was received, or when it was learned if that is not known.
        seen_ms: When its newest evidence was received.
        days: Different days of receipt.
        searched_ms: When a search last found it or its evidence; 0 if none did.
    """
    period = (seen_ms - first_ms) / max(1, days - 1)
    shortest, longest = (bound * DAY_MS for bound in EXPIRES_DAYS)
    return max(seen_ms, searched_ms) + int(min(max(EXPIRES_AFTER * period, shortest), longest))


GIVEN_ENOUGH: Final = 30
"""Prompts with a rule after which it counts that nobody reported a use of it: several days of three agents."""
UNUSED_DAYS: Final = 60
"""Days since a rule was learned or last seen for the same; the shortest time after which a rule expires."""
USES_REPORTED: Final = 10
"""Uses that a crew must have reported since, of whatever memory: most crews report none, which says nothing of a rule."""
RETIRE_DAYS: Final = 7
"""Days for which a rule is unhelpful before a person is asked to retire it."""


@dataclass(frozen=True, slots=True)
class RuleEffect:
    """What became of a rule in the prompts that had it.

    Attributes:
        given: Prompts that had it.
        used_by: Agents or tokens that reported a use, and publishers of completed runs that name it.
        harmed: Publishers of negative feedback, corrections and failed runs that name it.
        by_person: Whether one of them is a person's feedback.
        by: The entries that report harm.
        crew_uses: Reported uses of any memory of the crew since the rule was last seen.
    """

    given: int = 0
    used_by: frozenset[str] = frozenset()
    harmed: frozenset[str] = frozenset()
    by_person: bool = False
    by: tuple[str, ...] = ()
    crew_uses: int = 0


def is_harm(how: str, entry_type: str, payload: Mapping[str, Any]) -> bool:
    """Whether an entry that names a rule reports harm: a failed run, negative feedback, or a correction.

    Args:
        how: How it names the rule (``schemas/erasure/lineage.origins_of``).
        entry_type: Its type.
        payload: Its payload.
    """
    return (
        how in ("corrects", "supersedes")
        or entry_type in ("run.failed", "eval.regression_detected")
        or (entry_type == FEEDBACK and is_negative(payload))
    )


def is_unhelpful(effect: RuleEffect, seen_ms: int, due_ms: int) -> bool:
    """Whether a rule harms as many publishers as it helps, or is given again and again without use.

    One agent alone can make no rule unhelpful; a person can.

    Args:
        effect: What became of it.
        seen_ms: When it was learned or last seen.
        due_ms: The time of the run.
    """
    if (effect.by_person or len(effect.harmed) >= MIN_REFUTING) and len(effect.harmed) >= len(effect.used_by):
        return True
    return (
        not effect.used_by
        and effect.given >= GIVEN_ENOUGH
        and effect.crew_uses >= USES_REPORTED
        and due_ms - seen_ms >= UNUSED_DAYS * DAY_MS
    )


def state_of(
    refuting: Collection[str], *, by_person: bool, is_expired: bool, is_unhelpful: bool = False
) -> RuleState | None:
    """The new state of a rule; None if it holds.

    Args:
        refuting: Publishers that report that its action does not help.
        by_person: Whether a person reports it.
        is_expired: Whether the time of ``expires_ms`` has passed.
        is_unhelpful: See ``is_unhelpful``.
    """
    if by_person or len(refuting) >= MIN_REFUTING:
        return "contradicted"
    if is_unhelpful and not is_expired:
        return "unhelpful"
    if refuting:
        return "disputed"
    return "expired" if is_expired else None


MIN_REFUTING: Final = 2
"""Minimum number of publishers that end a rule without a person: one alone must not silence what others learned."""


@dataclass(frozen=True, slots=True)
class Usefulness:
    """The inputs of the score of a rule.

    Attributes:
        relevance: Confidence of the rule, in [0, 1].
        recalls: Recorded searches within ``RECALL_DAYS`` with the rule or its evidence among their hits.
        queries: Different queries of those searches.
        days_since: Days since the last search; None without a search, negative if the clock of the search was ahead.
        runs: Runs that found the rule, including the run that learned it.
        evidence: Entries of its evidence.
        types: Different types of those entries.
    """

    relevance: float
    recalls: int
    queries: int
    days_since: float | None
    runs: int
    evidence: int
    types: int


def parts(usefulness: Usefulness) -> dict[str, float]:
    """The parts of the score, each in [0, 1]."""
    age = usefulness.days_since
    return {
        "relevance": min(max(usefulness.relevance, 0.0), 1.0),
        "frequency": min(log(1 + usefulness.recalls) / log(1 + _FULL_RECALLS), 1.0),
        "diversity": min(log(1 + usefulness.queries) / log(1 + _FULL_QUERIES), 1.0),
        "recency": 0.0 if age is None else min(0.5 ** (age / _HALF_LIFE_DAYS), 1.0),
        "consolidation": min(usefulness.runs / _FULL_RUNS, 1.0),
        "richness": 0.3 * min(usefulness.evidence / _FULL_EVIDENCE, 1.0)
        + 0.7 * min(usefulness.types / _FULL_TYPES, 1.0),
    }


def score(usefulness: Usefulness) -> float:
    """The weighted sum of the parts, in [0, 1]."""
    return sum(WEIGHTS[name] * part for name, part in parts(usefulness).items())


def is_promoted(usefulness: Usefulness) -> bool:
    """Whether a rule has proved useful."""
    return (
        usefulness.recalls >= PROMOTE_RECALLS
        and usefulness.queries >= PROMOTE_QUERIES
        and score(usefulness) >= PROMOTE_SCORE
    )


def is_skill(usefulness: Usefulness) -> bool:
    """Whether a rule is useful enough to be proposed as a skill."""
    return is_promoted(usefulness) and usefulness.recalls >= SKILL_RECALLS and score(usefulness) >= SKILL_SCORE


# Finds groups of similar texts that recur often enough and on more than one day.


SIMILAR: Final = 0.7
"""Minimum mean similarity of two groups that are joined. Of 40 recurrences among 600 entries about the same services,
problems and causes (tests/support/planted.py, seeds 7 and 8), the mean of words and vectors (MiniLM) finds .82 to .93 with a
precision of .70 to .74 at 0.65, .93 with .90 to .93 at 0.70, and .93 with .97 to 1 at 0.75; words alone .93 with .86 to .95
at 0.70. Of near paraphrases in three crews' journals it finds all at 0.65, .83 at 0.70, .58 at 0.75."""
LOOSE: Final = 0.6
"""Like ``SIMILAR``, for groups that stand apart, if there are vectors: with 0.6 and 0.25, .92 of the near paraphrases are
found instead of .83, and of the planted recurrences, where all entries are about the same things, as many as before."""
APART: Final = 0.25
"""Minimum difference between the mean similarity within such a group and that of the nearest other entry to it."""
MIN_TERMS: Final = 3
"""Texts with fewer terms are not compared."""
MIN_OCCURRENCES: Final = 3
MIN_SAME: Final = 2
"""Minimum number of entries of a group that name the same remedy: two reports that agree on what to do, however they word
the problem."""
MIN_DAYS: Final = 2
SMOOTHING: Final = 2
"""The confidence of ``n`` occurrences is their mean similarity times ``n / (n + 2)``: three count 0.6, eight 0.8."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An entry: its id, its day (days since the epoch, UTC), its terms, and the day of its receipt if that differs."""

    entry_id: str
    day: int
    terms: frozenset[int]
    received: int | None = None


@dataclass(frozen=True, slots=True)
class Recurrence:
    """Entries with similar texts.

    Attributes:
        evidence: Their ids, in the order given.
        typical: The entry that is most similar to the others.
        days: Different days of receipt.
        confidence: In [0, 1].
    """

    evidence: tuple[str, ...]
    typical: str
    days: int
    confidence: float


def terms_of(analyzer: Analyzer, text: str) -> frozenset[int]:
    """The terms of a text; words with digits are left out, because they identify a single occurrence."""
    words = [word for word in tokens_of(text) if word.isalpha()]
    return frozenset(key for key in analyzer.keys_of(words) if key)


def keys_by_word(analyzer: Analyzer) -> Keys:
    """The terms of a word, as in ``terms_of``."""

    @cache
    def keys(word: str) -> tuple[int, ...]:
        return tuple(key for key in analyzer.keys_of([token for token in tokens_of(word) if token.isalpha()]) if key)

    return keys


def is_covered(terms: frozenset[int], by: frozenset[int]) -> bool:
    """Whether a text with the terms ``by`` contains most of ``terms``."""
    return len(terms & by) >= SIMILAR * len(terms)


def recurrences(
    entries: Sequence[Occurrence],
    cosines: Sequence[Sequence[float]] | None = None,
    *,
    same: Sequence[tuple[int, int]] = (),
) -> list[Recurrence]:
    """The groups that recur, the largest first.

    The similarity of two entries is the weighted Jaccard index of their terms, or its mean with the cosine of their
    vectors. The two groups with the highest mean similarity are joined until it is below ``SIMILAR`` (average linkage),
    so the result does not depend on the order of the entries.

    Args:
        entries: Entries; one that is given twice counts once.
        cosines: For each entry its cosine to each entry, NaN if one has no vector; None to compare words alone.
        same: Pairs of entries (by index) that name the same remedy. They are in one group, which recurs with
            ``MIN_SAME`` of them.
    """
    places: dict[str, int] = {}
    for at, occurrence in enumerate(entries):
        places.setdefault(occurrence.entry_id, at)
    kept = [at for at in places.values() if len(entries[at].terms) >= MIN_TERMS]
    told = [entries[at] for at in kept]
    similarities = _similarities(told, None if cosines is None else [[cosines[at][to] for to in kept] for at in kept])
    groups = _joined(similarities, SIMILAR) if cosines is None else _with_isolated(similarities)
    position = {at: n for n, at in enumerate(kept)}
    pairs = [(position[one], position[other]) for one, other in same if one in position and other in position]
    for one, other in pairs:
        first, second = (next(group for group in groups if at in group) for at in (one, other))
        if first is not second:
            groups.remove(second)
            first.extend(second)
    remedied = {at for pair in pairs for at in pair}
    found = []
    for group in groups:
        group.sort()
        naming = sum(at in remedied for at in group)
        members = [told[at] for at in group]
        if (len(group) >= MIN_OCCURRENCES or naming >= MIN_SAME) and (
            max(len({occurrence.day for occurrence in members}), _days(members)) >= MIN_DAYS
        ):
            found.append(_recurrence(group, members, similarities, naming))
    return sorted(found, key=lambda recurrence: -len(recurrence.evidence))


def _with_isolated(similarities: list[list[float]]) -> list[list[int]]:
    """The groups down to ``LOOSE`` that stand apart from all other entries by ``APART``, else those down to ``SIMILAR``."""
    fine = _joined(similarities, SIMILAR)
    found: list[list[int]] = []
    for group in _joined(similarities, LOOSE):
        inside = set(group)
        parts = [part for part in fine if part[0] in inside]
        if len(parts) > 1:
            count = len(group)
            mean = sum(similarities[at][to] for at in group for to in group if to != at) / (count * (count - 1))
            others = (row for at, row in enumerate(similarities) if at not in inside)
            nearest = max((sum(row[at] for at in group) / count for row in others), default=0.0)
            if mean - nearest < APART:
                found += parts
                continue
        found.append(group)
    return found


def _joined(similarities: list[list[float]], least: float) -> list[list[int]]:
    """Average linkage down to ``least``, as lists of indices; ties by the lowest indices."""
    count = len(similarities)
    means = [list(row) for row in similarities]
    groups: list[list[int] | None] = [[at] for at in range(count)]
    queue = [(-means[at][to], at, to) for at in range(count) for to in range(at + 1, count) if means[at][to] >= least]
    heapify(queue)
    while queue:
        negative, at, to = heappop(queue)
        first, second = groups[at], groups[to]
        if first is None or second is None or means[at][to] != -negative:
            continue
        size, other = len(first), len(second)
        groups[at], groups[to] = first + second, None
        row, second_row = means[at], means[to]
        for place, group in enumerate(groups):
            if group is None or place == at:
                continue
            mean = (row[place] * size + second_row[place] * other) / (size + other)
            row[place] = means[place][at] = mean
            if mean >= least:
                heappush(queue, (-mean, *((at, place) if at < place else (place, at))))
    return [group for group in groups if group is not None]


def _similarities(told: Sequence[Occurrence], cosines: list[list[float]] | None) -> list[list[float]]:
    """The similarity of each two entries."""
    count = len(told)
    weights = _weights(told)
    whole = [sum(weights[term] for term in sorted(one.terms)) for one in told]
    with_term: dict[int, list[int]] = defaultdict(list)
    found = [[0.0] * count for _ in range(count)]
    for at, occurrence in enumerate(told):
        row = found[at]
        for term in sorted(occurrence.terms):
            weight = weights[term]
            for to in with_term[term]:
                row[to] += weight
            with_term[term].append(at)
        of_vectors = None if cosines is None else cosines[at]
        for to in range(at):
            common = row[to]
            similarity = common / (whole[at] + whole[to] - common) if common else 0.0
            if of_vectors is not None and (cosine := of_vectors[to]) == cosine:
                similarity = (similarity + cosine) / 2
            row[to] = found[to][at] = similarity
    return found


def _days(group: Sequence[Occurrence]) -> int:
    """Different days of receipt."""
    return len({occurrence.day if occurrence.received is None else occurrence.received for occurrence in group})


def _weights(entries: Sequence[Occurrence]) -> Mapping[int, float]:
    counts = Counter(term for occurrence in entries for term in occurrence.terms)
    return {term: log(1 + len(entries) / count) for term, count in counts.items()}


def _recurrence(
    group: Sequence[int], members: Sequence[Occurrence], similarities: list[list[float]], naming: int
) -> Recurrence:
    count = len(group)
    closeness = [sum(similarities[at][to] for to in group if to != at) / (count - 1) for at in group]
    typical = max(range(count), key=lambda at: (round(closeness[at], 9), -at))
    mean = max(sum(closeness) / count, naming / count)
    return Recurrence(
        evidence=tuple(occurrence.entry_id for occurrence in members),
        typical=members[typical].entry_id,
        days=_days(members),
        confidence=round(mean * count / (count + SMOOTHING), 4),
    )

"""What a consolidation reads of a crew: candidates, the rules it has, and the searches that found them; blocking.

Invariant: candidates and searches are those before the tick, so a run that is repeated finds the same; all rules are read,
because if several ticks come at once, the later ones need the rules of the first. A retracted entry is not a candidate.
``published_ms``, the broker's time, decides what is new and on which day something was received; ``ts_ms`` is the author's.
Candidates are taken from each publisher in turn, so that one that publishes much does not displace what others say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson

from ...schemas.access.tables import read_workspace_settings
from ...schemas.core.entry import ActorType
from ...schemas.core.ids import name_key
from ...schemas.core.ports import ViewReader
from ...schemas.core.principal import UNRECORDED
from ...schemas.core.table import PRESENT
from ...schemas.core.timestamps import DAY_MS
from ...schemas.documents.rules import Scope, owner_of
from ...schemas.entries.tables import ENTRIES
from ...schemas.erasure.tables import ERASURE_ROWS
from ...schemas.learning.agreement import is_shared
from ...schemas.learning.consolidation import (
    CHAT,
    HISTORY_DAYS,
    MAX_ENTRIES,
    MESSAGE,
    OWN_OUTPUT,
    RECALL_DAYS,
    SOURCES,
    RuleEffect,
    action_in,
    is_candidate,
    is_chat,
    is_fit,
    is_harm,
    is_telling,
    normalised,
)
from ...schemas.learning.events import MemoryConsolidated
from ...schemas.learning.lessons import MISSION_OUTCOME
from ...schemas.learning.procedures import NO_STEPS, RUN_ENDS, RUNS_READ, STEPS_READ, RunOfSteps
from ...schemas.learning.tables import LESSONS, PROPOSAL_DECISIONS, PROPOSALS, RULE_MARKS, RULE_STATES, RULES
from ...schemas.lineage.tables import GIVEN, LINEAGE
from ...schemas.models.tables import EMBEDDINGS, active_in, read_active_models
from ...schemas.recall.tables import RECEIPTS
from ...schemas.standing.tables import LIVE_PRIORITIES, RETRACTIONS
from ..reacting.sweeping import Tick

Floats = npt.NDArray[np.float32]

_READ_MAX: Final = 10 * MAX_ENTRIES
"""Rows that are read for ``MAX_ENTRIES`` candidates: most decisions of keepers are not denials, some reports are routine."""
_LIVE: Final = f"""{ENTRIES} e LEFT JOIN {LIVE_PRIORITIES} p
    ON p.workspace_id = e.workspace_id AND p.entry_id = e.id AND p.{PRESENT}"""
_PERMANENT: Final = "coalesce(p.priority, e.priority) = 'permanent'"
_CHAT: Final = f"(starts_with(e.entry_type, '{CHAT}') OR e.entry_type = '{MESSAGE}')"
_OF_RUN: Final = f"""e.workspace_id = $workspace AND e.seq < $seq AND e.published_ms <= $due
    AND (list_contains($types, e.entry_type) OR {_PERMANENT} OR ($chats AND {_CHAT}))
    AND NOT {" AND NOT ".join(f"starts_with(e.entry_type, '{prefix}')" for prefix in OWN_OUTPUT)}"""
_ERASED: Final = f"""SELECT count(*) > 0 FROM {ERASURE_ROWS}
    WHERE workspace_id = $workspace AND seq < $seq AND completed_ms > $since"""
_CREWS: Final = f"""SELECT DISTINCT e.crew_id FROM {_LIVE} WHERE {_OF_RUN} AND e.crew_id IS NOT NULL
    AND e.published_ms > $since AND ($crew IS NULL OR e.crew_id = $crew) ORDER BY 1"""
_CREWS_WITH_RULES: Final = f"SELECT DISTINCT crew_id FROM {RULES} WHERE workspace_id = ?"
_LAST_RUN: Final = f"""SELECT max(ts_ms) FROM {ENTRIES} WHERE workspace_id = $workspace AND control AND seq < $seq
    AND entry_type = '{MemoryConsolidated.ENTRY_TYPE}' AND crew_id = $crew AND ts_ms <= $due"""
_CANDIDATES: Final = f"""WITH ranked AS (
        SELECT e.seq, row_number() OVER (PARTITION BY e.publisher, {_CHAT} ORDER BY e.seq DESC) AS place FROM {_LIVE}
        WHERE {_OF_RUN} AND e.crew_id = $crew AND e.published_ms > $history
        AND NOT EXISTS (SELECT 1 FROM {RETRACTIONS} r WHERE r.workspace_id = e.workspace_id AND r.kind = 'entry'
            AND r.target_id = e.id AND r.{PRESENT})
        ORDER BY place, e.seq DESC LIMIT {_READ_MAX})
    SELECT e.seq, e.id, e.entry_type, e.severity, e.ts_ms, e.published_ms, e.summary, e.payload, e.published_ms > $since,
        {_PERMANENT}, coalesce(e.publisher, '{UNRECORDED}'), e.agent_id
    FROM {_LIVE} JOIN ranked ON ranked.seq = e.seq ORDER BY ranked.place, e.seq DESC"""
_RULES: Final = f"""WITH state AS (SELECT * FROM {RULE_STATES} WHERE workspace_id = $workspace
        QUALIFY row_number() OVER (PARTITION BY rule_id ORDER BY seq DESC) = 1)
    SELECT r.rule_id, r.pattern, r.action, r.confidence, coalesce(state.evidence, r.evidence), coalesce(state.days, r.days),
    r.learned_ms,
    coalesce((SELECT max(m.seq) FROM {RULE_MARKS} m WHERE m.workspace_id = r.workspace_id AND m.rule_id = r.rule_id
        AND m.mark = 'confirmed'), r.seq),
    (SELECT 1 + count(*) FROM {RULE_MARKS} m WHERE m.workspace_id = r.workspace_id AND m.rule_id = r.rule_id
        AND m.mark = 'confirmed'),
    EXISTS (SELECT 1 FROM {RULE_MARKS} m WHERE m.workspace_id = r.workspace_id AND m.rule_id = r.rule_id
        AND m.mark = 'promoted'),
    EXISTS (SELECT 1 FROM {RETRACTIONS} x WHERE x.workspace_id = r.workspace_id AND x.kind = 'entry'
        AND x.target_id = r.rule_id AND x.{PRESENT}), coalesce(state.publishers, r.publishers), false,
    coalesce(state.state, ''), coalesce(state.seen_ms, r.learned_ms), r.proposal_id IS NOT NULL,
    coalesce(state.changed_ms, r.learned_ms)
    FROM {RULES} r LEFT JOIN state ON state.rule_id = r.rule_id
    WHERE r.workspace_id = $workspace AND r.crew_id = $crew ORDER BY r.seq"""
_PROPOSALS: Final = f"""SELECT proposal_id, pattern, action, confidence, evidence, days, made_ms, seq, 0, false, true,
    publishers, coalesce((SELECT arg_max(d.decision, d.seq) FROM {PROPOSAL_DECISIONS} d
        WHERE d.workspace_id = p.workspace_id AND d.proposal_id = p.proposal_id), '') <> 'rejected'
    AND NOT EXISTS (SELECT 1 FROM {RULES} r
        WHERE r.workspace_id = p.workspace_id AND p.proposal_id IN (r.proposal_id, r.settles))
    AND NOT EXISTS (SELECT 1 FROM {RETRACTIONS} x WHERE x.workspace_id = p.workspace_id AND x.kind = 'entry'
        AND x.target_id = p.proposal_id AND x.{PRESENT})
    FROM {PROPOSALS} p WHERE workspace_id = $workspace AND crew_id = $crew AND skill_of IS NULL ORDER BY seq"""
_STAGED: Final = f"""SELECT skill_of, kind FROM {PROPOSALS}
    WHERE workspace_id = $workspace AND crew_id = $crew AND skill_of IS NOT NULL"""
_TYPES: Final = f"SELECT id, entry_type FROM {ENTRIES} WHERE workspace_id = $workspace AND list_contains($ids, id)"
_VECTORS: Final = f"""SELECT entry_seq, vector FROM {EMBEDDINGS} WHERE workspace_id = $workspace AND model = $model
    AND dim > 0 AND seq < $seq AND entry_seq IN (SELECT unnest($seqs::BIGINT[]))"""
MIN_VECTORS: Final = 2
_LESSONS: Final = f"""SELECT rule FROM {LESSONS} l WHERE workspace_id = $workspace AND owner = $owner AND seq < $seq
    AND finding IS NULL AND source <> '{MISSION_OUTCOME}' AND NOT EXISTS (SELECT 1 FROM {RETRACTIONS} x
        WHERE x.workspace_id = l.workspace_id AND x.kind = 'entry' AND x.target_id = l.entry_id AND x.{PRESENT})
    QUALIFY row_number() OVER (PARTITION BY lesson_id ORDER BY seq DESC) = 1 ORDER BY seq"""
_SEARCHES: Final = f"""SELECT query, ts_ms, hits FROM {RECEIPTS}
    WHERE workspace_id = $workspace AND seq < $seq AND ts_ms > $since AND ts_ms <= $due"""
_PROCEDURES: Final = f"""SELECT steps FROM {PROPOSALS}
    WHERE workspace_id = $workspace AND crew_id = $crew AND kind = 'procedure'"""
_RUN: Final = "coalesce(e.trace_id, e.run_id)"
_ENDED: Final = f"""SELECT e.id, {_RUN}, e.entry_type, e.summary, coalesce(e.publisher, '{UNRECORDED}'), e.published_ms,
        e.published_ms > $since
    FROM {ENTRIES} e WHERE e.workspace_id = $workspace AND e.seq < $seq AND e.crew_id = $crew AND e.published_ms <= $due
    AND e.published_ms > $history AND list_contains($ends, e.entry_type) AND NOT e.control AND {_RUN} IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM {RETRACTIONS} x WHERE x.workspace_id = e.workspace_id AND x.kind = 'entry'
        AND x.target_id = e.id AND x.{PRESENT})
    ORDER BY e.seq DESC LIMIT {RUNS_READ}"""
_STEPS: Final = f"""SELECT {_RUN}, e.entry_type, e.summary FROM {ENTRIES} e
    WHERE e.workspace_id = $workspace AND e.seq < $seq AND e.crew_id = $crew AND e.published_ms > $history
    AND NOT e.control AND list_contains($runs, {_RUN})
    AND NOT EXISTS (SELECT 1 FROM {RETRACTIONS} x WHERE x.workspace_id = e.workspace_id AND x.kind = 'entry'
        AND x.target_id = e.id AND x.{PRESENT})
    QUALIFY row_number() OVER (PARTITION BY {_RUN} ORDER BY e.ts_ms, e.seq) <= {2 * STEPS_READ}
    ORDER BY e.ts_ms, e.seq"""
_GIVEN: Final = f"""SELECT entry_id, count(*) FROM {GIVEN} WHERE workspace_id = $workspace AND seq < $seq
    AND list_contains($keys, key) AND list_contains($ids, entry_id) GROUP BY entry_id"""
_USES: Final = f"""SELECT used, used_ms, coalesce('agent:' || agent_id, 'token:' || asked_by, '') FROM {RECEIPTS}
    WHERE workspace_id = $workspace AND seq < $seq AND used IS NOT NULL AND used <> '[]' AND used_ms <= $due
    AND crew_id IS NOT DISTINCT FROM $crew"""
_NAMING: Final = f"""SELECT l.source, l.how, e.id, e.entry_type, e.actor_type, e.payload,
        coalesce(e.publisher, '{UNRECORDED}')
    FROM {LINEAGE} l JOIN {ENTRIES} e ON e.workspace_id = l.workspace_id AND e.seq = l.seq
    WHERE l.workspace_id = $workspace AND l.seq < $seq AND list_contains($ids, l.source) AND NOT e.control
    AND e.published_ms <= $due AND NOT EXISTS (SELECT 1 FROM {RETRACTIONS} x WHERE x.workspace_id = e.workspace_id
        AND x.kind = 'entry' AND x.target_id = e.id AND x.{PRESENT})"""


@dataclass(frozen=True, slots=True)
class LearningEntry:
    """An entry that rules are learned from.

    Attributes:
        received_ms: The broker's time, milliseconds since the epoch; ``ts_ms`` is the author's.
        action: What it says to do; empty if nothing.
        is_new: Whether it was recorded within the look-back.
        publisher: Whose token published it (``schemas/core/principal``), or ``UNRECORDED``.
        agent_id: The agent that it names.
        is_telling: Whether its repetition teaches something without a remedy (``consolidation.is_telling``).
    """

    seq: int
    entry_id: str
    entry_type: str
    ts_ms: int
    received_ms: int
    summary: str
    action: str
    is_new: bool
    is_permanent: bool
    publisher: str
    agent_id: str | None
    is_telling: bool = True


@dataclass(frozen=True, slots=True)
class KnownRule:
    """A rule of the crew, or a proposal.

    Attributes:
        last_seq: Sequence of the last run that found it.
        runs: The number of runs that found it.
        publishers: Of its evidence; empty if they were not recorded.
        is_pending: Whether it is a proposal that waits for its decision.
        state: The last ``RuleChanged.state``; empty if nothing changed.
        seen_ms: When the newest known evidence was received, milliseconds since the epoch.
        is_reviewed: Whether a person approved it.
        changed_ms: When its state changed last, milliseconds since the epoch.
    """

    rule_id: str
    pattern: str
    action: str
    confidence: float
    evidence: tuple[str, ...]
    days: int
    learned_ms: int
    last_seq: int
    runs: int
    is_promoted: bool
    is_retracted: bool
    publishers: tuple[str, ...] = ()
    is_pending: bool = False
    state: str = ""
    seen_ms: int = 0
    is_reviewed: bool = False
    changed_ms: int = 0

    @property
    def waits(self) -> bool:
        """Whether it is a pending proposal that one publisher, or one day, was not enough to learn."""
        return self.is_pending and not is_shared(self.publishers, self.days)


@dataclass(frozen=True, slots=True)
class Search:
    """A recorded search: its query in normal form, its time, its hits."""

    query: str
    ts_ms: int
    hits: frozenset[str]


def looks_back_to(views: ViewReader, tick: Tick, since_ms: int) -> int:
    """From when entries count as new: after an erasure, all that a run reads.

    An erasure takes rules of which one piece of evidence went; the pieces that stay may be rules again, though none is new.
    """
    [(erased,)] = views.rows(_ERASED, {"workspace": tick.workspace_id, "seq": tick.seq, "since": since_ms})
    return min(since_ms, tick.due_ms - HISTORY_DAYS * DAY_MS) if erased else since_ms


def crews_of(views: ViewReader, tick: Tick, since_ms: int, *, chats: bool = False) -> list[str]:
    """The crews with candidates or ended runs within the look-back; in a run on schedule also those with rules."""
    types = [*SOURCES, *RUN_ENDS]
    params = {**_of_run(tick), "types": types, "since": since_ms, "crew": tick.crew_id, "chats": chats}
    crews = {crew for (crew,) in views.rows(_CREWS, params)}
    if tick.since_ms is None and tick.crew_id is None:
        crews |= {crew for (crew,) in views.rows(_CREWS_WITH_RULES, [tick.workspace_id])}
    return sorted(crews)


def last_run_of(views: ViewReader, tick: Tick, crew_id: str) -> int | None:
    """When the last run of a crew that was not skipped was due, in ms since the epoch; None without such a run."""
    params = {"workspace": tick.workspace_id, "seq": tick.seq, "due": tick.due_ms, "crew": crew_id}
    found: int | None = views.rows(_LAST_RUN, params)[0][0]
    return found


def candidates_of(
    views: ViewReader, tick: Tick, crew_id: str, since_ms: int, *, chats: bool = False
) -> list[LearningEntry]:
    """At most ``MAX_ENTRIES`` candidates of a crew, oldest first; of the look-back and the days before it."""
    history = min(since_ms, tick.due_ms - HISTORY_DAYS * DAY_MS)
    params = {**_of_run(tick), "since": since_ms, "crew": crew_id, "history": history, "chats": chats}
    candidates: list[LearningEntry] = []
    for row in views.rows(_CANDIDATES, params):
        seq, entry_id, entry_type, severity, ts_ms, received_ms, summary, raw, is_new, permanent, publisher, agent = row
        payload: dict[str, Any] = orjson.loads(raw)
        if not is_candidate(entry_type, severity, payload, permanent=permanent, chats=chats):
            continue
        action = action_in(payload)
        if is_fit(summary, action, permanent=permanent, is_turn=is_chat(entry_type)):
            telling = is_telling(entry_type, summary, permanent=permanent)
            candidates.append(
                LearningEntry(
                    seq,
                    entry_id,
                    entry_type,
                    ts_ms,
                    received_ms,
                    summary,
                    action,
                    is_new,
                    permanent,
                    publisher,
                    agent,
                    telling,
                )
            )
            if len(candidates) == MAX_ENTRIES:
                break
    return sorted(candidates, key=lambda candidate: candidate.seq)


def cosines_of(views: ViewReader, tick: Tick, candidates: Sequence[LearningEntry]) -> list[list[float]] | None:
    """The cosines of the stored vectors of candidates; NaN for one without a vector, None if fewer than two have one."""
    stored = vectors_of(views, tick, candidates)
    if stored is None:
        return None
    found: list[list[float]] = (stored @ stored.T).tolist()
    return found


def vectors_of(views: ViewReader, tick: Tick, candidates: Sequence[LearningEntry]) -> Floats | None:
    """The stored vectors of candidates, (n, d) float32, L2-normalised; a row of NaN for one without a vector.

    Vectors of the workspace's active model count that were recorded before the tick. None if fewer than two have one.
    """
    model = active_in(read_active_models(views), tick.workspace_id)
    params = {"workspace": tick.workspace_id, "model": model, "seq": tick.seq, "seqs": [one.seq for one in candidates]}
    vectors = dict(views.rows(_VECTORS, params)) if model is not None else {}
    if len(vectors) < MIN_VECTORS:
        return None
    missing = np.full(max(map(len, vectors.values())) // 4, np.nan, "<f4").tobytes()
    rows = [vectors.get(candidate.seq, missing) for candidate in candidates]
    return normalised_rows([row if len(row) == len(missing) else missing for row in rows])


def normalised_rows(vectors: Sequence[bytes]) -> Floats:
    """Vectors of the same length as (n, d) float32, L2-normalised."""
    matrix = np.array([np.frombuffer(vector, "<f4") for vector in vectors], np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix


def lessons_of(views: ViewReader, tick: Tick, crew_id: str) -> list[str]:
    """The texts of the lessons of a crew, oldest first; without retracted and replaced ones."""
    params = {"workspace": tick.workspace_id, "owner": owner_of(Scope.CREW, crew_id), "seq": tick.seq}
    return [rule for (rule,) in views.rows(_LESSONS, params)]


def rules_of(views: ViewReader, tick: Tick, crew_id: str) -> list[KnownRule]:
    """The rules of a crew, retracted ones too, oldest first."""
    return _known(views, _RULES, tick, crew_id)


def proposals_of(views: ViewReader, tick: Tick, crew_id: str) -> list[KnownRule]:
    """Rules that were proposed, whatever became of them: none is proposed again, and none is found again."""
    return _known(views, _PROPOSALS, tick, crew_id)


def _known(views: ViewReader, sql: str, tick: Tick, crew_id: str) -> list[KnownRule]:
    rows = views.rows(sql, {"workspace": tick.workspace_id, "crew": crew_id})
    return [
        KnownRule(*[*row[:4], tuple(orjson.loads(row[4])), *row[5:11], tuple(orjson.loads(row[11])), *row[12:]])
        for row in rows
    ]


def staged_of(views: ViewReader, tick: Tick, crew_id: str) -> frozenset[tuple[str, str]]:
    """The rules of a crew that were proposed as skills or for retirement, and procedures, each with the kind of proposal."""
    rows = views.rows(_STAGED, {"workspace": tick.workspace_id, "crew": crew_id})
    return frozenset((name, kind) for name, kind in rows)


def procedures_of(views: ViewReader, tick: Tick, crew_id: str) -> list[tuple[str, ...]]:
    """The steps of each procedure that was proposed for a crew, whatever became of it."""
    rows = views.rows(_PROCEDURES, {"workspace": tick.workspace_id, "crew": crew_id})
    return [tuple(orjson.loads(steps)) for (steps,) in rows]


def runs_of(views: ViewReader, tick: Tick, crew_id: str, since_ms: int) -> list[RunOfSteps]:
    """The newest ended runs of a crew with their steps, oldest first; none if no run ended within the look-back.

    The entries of a run have its ``trace_id``, else its ``payload.run_id``.
    """
    params = {
        "workspace": tick.workspace_id,
        "crew": crew_id,
        "seq": tick.seq,
        "due": tick.due_ms,
        "since": since_ms,
        "history": min(since_ms, tick.due_ms - HISTORY_DAYS * DAY_MS),
        "ends": list(RUN_ENDS),
    }
    ended = views.rows(_ENDED, params)
    if not any(row[-1] for row in ended):
        return []
    steps: dict[str, list[str]] = {}
    runs = {run for _, run, *_ in ended}
    of_runs = {name: params[name] for name in ("workspace", "crew", "seq", "history")}
    for run, entry_type, summary in views.rows(_STEPS, {**of_runs, "runs": sorted(runs)}):
        if not entry_type.startswith(NO_STEPS) and is_fit(summary, summary, permanent=False):
            steps.setdefault(run, []).append(summary)
    return [
        RunOfSteps(entry_id, summary, publisher, received_ms // DAY_MS, RUN_ENDS[entry_type], tuple(steps.get(run, ())))
        for entry_id, run, entry_type, summary, publisher, received_ms, _ in reversed(ended)
        if is_fit(summary, summary, permanent=False)
    ]


def effects_of(views: ViewReader, tick: Tick, crew_id: str, known: Sequence[KnownRule]) -> dict[str, RuleEffect]:
    """What became of the learned rules of a crew in the prompts that had them, by id."""
    rules = {rule.rule_id: rule for rule in known if rule.runs and not rule.is_retracted}
    if not rules:
        return {}
    of_run = {"workspace": tick.workspace_id, "seq": tick.seq, "due": tick.due_ms, "crew": crew_id}
    ids = list(rules)
    keys = [name_key((tick.workspace_id, rule_id)) for rule_id in ids]
    given = dict(views.rows(_GIVEN, {"workspace": tick.workspace_id, "seq": tick.seq, "ids": ids, "keys": keys}))
    used_by: dict[str, set[str]] = {rule_id: set() for rule_id in ids}
    uses: list[int] = []
    for used, used_ms, holder in views.rows(_USES, of_run):
        uses.append(used_ms)
        for rule_id in orjson.loads(used):
            if rule_id in rules:
                used_by[rule_id].add(holder)
    harmed: dict[str, dict[str, str]] = {rule_id: {} for rule_id in ids}
    by_person: set[str] = set()
    named = views.rows(_NAMING, {"workspace": tick.workspace_id, "seq": tick.seq, "due": tick.due_ms, "ids": ids})
    for rule_id, how, entry_id, entry_type, actor_type, payload, publisher in named:
        if entry_type == "run.completed":
            used_by[rule_id].add(publisher)
        elif is_harm(how, entry_type, orjson.loads(payload) if payload else {}):
            harmed[rule_id].setdefault(publisher, entry_id)
            if actor_type == ActorType.USER and not publisher.startswith("agent:"):
                by_person.add(rule_id)
    return {
        rule_id: RuleEffect(
            given=given.get(rule_id, 0),
            used_by=frozenset(used_by[rule_id]),
            harmed=frozenset(harmed[rule_id]),
            by_person=rule_id in by_person,
            by=tuple(harmed[rule_id].values()),
            crew_uses=sum(used_ms >= max(rule.learned_ms, rule.seen_ms) for used_ms in uses),
        )
        for rule_id, rule in rules.items()
    }


def learning_settings(views: ViewReader, workspace_id: str) -> tuple[bool, bool]:
    """Whether rules of the workspace wait for a person, and whether they are learned from conversations, too."""
    settings = read_workspace_settings(views, workspace_id)
    return settings.review_rules is True, settings.learn_from_chats is True


def types_of(views: ViewReader, workspace_id: str, ids: list[str]) -> dict[str, str]:
    """The types of entries by id."""
    return dict(views.rows(_TYPES, {"workspace": workspace_id, "ids": ids}))


def searches_of(views: ViewReader, tick: Tick) -> list[Search]:
    """The searches of the last ``RECALL_DAYS``."""
    params = {
        "workspace": tick.workspace_id,
        "seq": tick.seq,
        "due": tick.due_ms,
        "since": tick.due_ms - RECALL_DAYS * DAY_MS,
    }
    return [
        Search(normalised(query), ts_ms, frozenset(hit["entry_id"] for hit in orjson.loads(hits)))
        for query, ts_ms, hits in views.rows(_SEARCHES, params)
    ]


def _of_run(tick: Tick) -> dict[str, Any]:
    return {"workspace": tick.workspace_id, "seq": tick.seq, "due": tick.due_ms, "types": list(SOURCES)}

"""Adds to stored entries their live priority and whether they count now.

Invariant: the standing follows the rule of ``services/query/standing``, as that of a hit of recall does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ....schemas.ports import ViewReader
from ....schemas.rules.actors import author_of
from ....schemas.rules.relations import CONTRADICTS, SUPERSEDES
from ....schemas.rules.spheres import Sphere
from ....schemas.timestamps import parse_ts, to_ms
from ....schemas.views import (
    ENTRIES,
    LIVE_PRIORITIES,
    RELATIONS,
    RETRACTIONS,
    SUPERSESSIONS,
    RetractionRow,
    SupersessionRow,
)
from ....schemas.views.table import PRESENT, as_of
from ..standing import Replacement, StandingFacts, StandingSubject
from .rows import StoredEntry
from .visibility import Condition

_AMONG: Final = "IN (SELECT unnest(?::VARCHAR[]))"
_LIVE: Final = (
    f"SELECT entry_id, priority FROM {LIVE_PRIORITIES} WHERE workspace_id = ? AND {PRESENT} AND entry_id {_AMONG}"
)
_SUPERSEDED: Final = f"SELECT {SUPERSESSIONS.names} FROM {SUPERSESSIONS} WHERE workspace_id = ? AND target_id {_AMONG}"
_RETRACTED: Final = (
    f"SELECT {RETRACTIONS.names} FROM {RETRACTIONS} WHERE workspace_id = ? AND {PRESENT} AND target_id {_AMONG}"
)
_SUBJECT: Final = """other.id, other.seq, other.agent_id, coalesce(other.valid_ms, other.ts_ms), other.actor_type,
        other.actor_id, other.mission_id, other.data_subject_id, other.trace_id"""
_OTHER: Final = f"""SELECT edge.here, edge.state, edge.reason, edge.seq, {_SUBJECT}
    FROM (SELECT src_entry_id AS here, dst_seq AS there, * FROM {RELATIONS}
        UNION ALL SELECT dst_entry_id AS here, src_seq AS there, * FROM {RELATIONS}) AS edge
    JOIN {ENTRIES} AS other ON other.seq = edge.there
    WHERE edge.workspace_id = ? AND edge.relation = '{CONTRADICTS}' AND edge.here {_AMONG}"""
_NEWER: Final = f"""SELECT edge.dst_entry_id, edge.state, edge.reason, edge.since_ms, edge.seq, {_SUBJECT}
    FROM {RELATIONS} AS edge JOIN {ENTRIES} AS other ON other.seq = edge.src_seq
    WHERE edge.workspace_id = ? AND edge.relation = '{SUPERSEDES}' AND edge.dst_entry_id {_AMONG}"""


def live_priority_condition(workspace_id: str, priorities: Sequence[str]) -> Condition:
    """Condition that the live priority of an entry is one of some."""
    changed = f"SELECT entry_id FROM {LIVE_PRIORITIES} WHERE workspace_id = ? AND {PRESENT}"
    wanted = f"({', '.join('?' * len(priorities))})"
    return Condition(
        f"(id IN ({changed} AND priority IN {wanted}) OR priority IN {wanted} AND id NOT IN ({changed}))",
        (workspace_id, *priorities, *priorities, workspace_id),
    )


def add_marks(views: ViewReader, entries: Sequence[StoredEntry], past_seq: int | None = None) -> None:
    """Set ``live_priority`` and ``standing`` in the records of entries of one workspace; blocking.

    Args:
        views: The views.
        entries: The entries.
        past_seq: The marks are those right after this sequence, without relations that changed since; now if None.
    """
    if not entries:
        return
    workspace = entries[0].record["workspace_id"]

    def rows(sql: str, ids: Sequence[str]) -> Sequence[tuple[Any, ...]]:
        return views.rows(sql if past_seq is None else _then(sql, past_seq), [workspace, ids])

    ids = [entry.id for entry in entries]
    live = dict(rows(_LIVE, ids))
    facts = StandingFacts()
    about = list(ids)
    subjects = {entry.id: _subject(entry) for entry in entries}
    for row in rows(_SUPERSEDED, ids):
        facts.supersede(SupersessionRow(*row))
        about.append(SupersessionRow(*row).by_id)
    for here, state, reason, seq, *other in rows(_OTHER, ids):
        subject = _other(*other)
        facts.contradict(subjects[here], subject, state, reason, seq)
        about.append(subject.entry_id)
    for here, state, reason, since_ms, seq, *other in rows(_NEWER, ids):
        newer = _other(*other)
        from_ms = newer.holds_ms if since_ms is None else max(since_ms, newer.holds_ms)
        facts.replace(subjects[here], Replacement(newer, state, reason, from_ms, seq))
        about.append(newer.entry_id)
    for row in rows(_RETRACTED, about):
        facts.retract(RetractionRow(*row))
    for entry in entries:
        standing = facts.standing(subjects[entry.id])
        entry.record["live_priority"] = live.get(entry.id, entry.record["priority"])
        entry.record["standing"] = None if standing is None else standing.model_dump(mode="json")


def _then(sql: str, seq: int) -> str:
    """A query of this module as of a sequence: of a table with history, of supersessions, or of relations."""
    if PRESENT in sql:
        return sql.replace(PRESENT, f"({as_of(seq)})")
    return f"{sql} AND {'edge.seq' if RELATIONS.name in sql else 'by_seq'} <= {seq:d}"


def _other(
    entry_id: str, seq: int, agent_id: str | None, holds_ms: int, actor: str, actor_id: str | None, *sphere: str | None
) -> StandingSubject:
    """From the columns of ``_SUBJECT``."""
    return StandingSubject(entry_id, seq, agent_id, holds_ms, author_of(actor, actor_id), Sphere(*sphere))


def _subject(entry: StoredEntry) -> StandingSubject:
    valid_at = entry.record["valid_at"]
    holds_ms = entry.ts_ms if valid_at is None else to_ms(parse_ts(valid_at))
    author = author_of(entry.record["actor_type"], entry.record["actor_id"])
    sphere = Sphere(*(entry.record[name] for name in Sphere._fields))
    return StandingSubject(entry.id, entry.seq, entry.record["agent_id"], holds_ms, author, sphere)

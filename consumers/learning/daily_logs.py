"""Promotes recurring lines of daily logs to AGENT.md and CREW.md, and archives old logs; blocking, publishes nothing.

Invariants: a line that was promoted or is in the document is not promoted again, even if it was removed later; ids of
writes follow from the tick and the document, so a run that is repeated writes nothing twice; the newest log of an owner is
not archived. Logs of agents whose memory is off are neither read nor archived.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from Stemmer import Stemmer

from ...schemas.access.tables import AGENTS
from ...schemas.core.entry import ActorType
from ...schemas.core.envelope import DocumentWritten
from ...schemas.core.ids import derived_id
from ...schemas.core.ports import ViewReader
from ...schemas.core.table import PRESENT
from ...schemas.core.timestamps import DAY_MS, format_ms
from ...schemas.documents.events import MAX_CAUSES, DocumentAction
from ...schemas.documents.rules import SCAN_OVERLAP, SOFT_CAP_PERCENT, TIERS, Scope, scope_of
from ...schemas.documents.tables import DOCUMENTS, VERSIONS
from ...schemas.learning.agreement import Saying, pattern_of
from ...schemas.learning.consolidation import (
    Occurrence,
    Recurrence,
    is_covered,
    is_routine,
    keys_by_word,
    recurrences,
    says_why,
    states_fact,
    teaches,
    terms_of,
)
from ...schemas.text.analyzer import Analyzer
from ...schemas.text.injection import finding_in
from ...schemas.text.secrets import find_secrets
from ..reacting.sweeping import Tick

SOURCE: Final = "consolidation"
ARCHIVE_DAYS: Final = 30
"""Days after which a log is archived: as many as a prompt block looks back (``memory_block.WINDOW_DAYS``)."""
LINES_MAX: Final = 1_000
"""Newest lines of an owner that are compared; a month of a busy agent. They take about a second."""
LOGS_MAX: Final = 1_000
"""Logs that one run archives, the oldest; the next run archives more."""
LINE_CHARS: Final = 300
"""Characters of a line that may be promoted; a longer text is not an observation."""
_TARGETS: Final = {Scope.AGENT: "AGENT", Scope.CREW: "CREW"}
_PREFIX: Final = re.compile(
    r"\s*(?:[-*+]\s+)?(?:\[[ xX]\]\s+)?(?:\d{4}-\d\d-\d\dT\S+\s+—\s+)?"
    r"(?:\d{1,2}[:.]\d\d(?::\d\d)?(?:\s*(?:h|Uhr|am|pm))?\b[\s:,—–-]*)?"
)
_HEADING: Final = re.compile(r"\s*#")

_OF_RUN: Final = f"""d.workspace_id = $workspace AND d.tier = 'daily' AND NOT d.retracted
    AND ($crew IS NULL OR d.owner = 'c-' || $crew OR EXISTS (SELECT 1 FROM {AGENTS} a WHERE a.{PRESENT}
        AND a.workspace_id = d.workspace_id AND d.owner = 'a-' || a.agent_id AND a.crew_id = $crew))
    AND NOT EXISTS (SELECT 1 FROM {AGENTS} a WHERE a.{PRESENT}
        AND a.workspace_id = d.workspace_id AND d.owner = 'a-' || a.agent_id AND NOT a.memory_enabled)"""
_OLD: Final = f"""SELECT owner, doc_key FROM (SELECT d.owner, d.doc_key, d.updated_ms,
        max(d.doc_key) OVER (PARTITION BY d.owner) AS newest FROM {DOCUMENTS} d WHERE {_OF_RUN})
    WHERE doc_key < newest AND doc_key < $day AND updated_ms < $before ORDER BY doc_key, owner LIMIT {LOGS_MAX}"""
_WRITTEN: Final = f"""SELECT DISTINCT d.owner FROM {DOCUMENTS} d
    WHERE {_OF_RUN} AND d.updated_ms > $since AND d.updated_ms <= $due ORDER BY 1"""
_PIECES: Final = f"""SELECT v.write_id, d.doc_key, v.piece FROM {DOCUMENTS} d JOIN {VERSIONS} v
    ON v.workspace_id = d.workspace_id AND v.owner = d.owner AND v.tier = d.tier AND v.doc_key = d.doc_key
    AND v.seq >= d.base_seq AND v.seq < $seq
    WHERE d.workspace_id = $workspace AND d.owner = $owner AND d.tier = 'daily' AND NOT d.retracted AND d.finding IS NULL
    AND v.piece IS NOT NULL AND v.data_subject_id IS NULL ORDER BY d.doc_key DESC, v.seq DESC LIMIT {LINES_MAX}"""
_TARGET: Final = f"""SELECT content, bytes, retracted OR finding IS NOT NULL FROM {DOCUMENTS}
    WHERE workspace_id = $workspace AND owner = $owner AND tier = $tier"""
_PROMOTED: Final = f"""SELECT piece FROM {VERSIONS} WHERE workspace_id = $workspace AND owner = $owner AND tier = $tier
    AND source = '{SOURCE}' AND piece IS NOT NULL"""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a daily log without bullet and time; ``write_id`` is the write that it came with."""

    write_id: str
    date: str
    text: str


@dataclass(frozen=True, slots=True)
class LogsFound:
    """The writes of a run, and its counts: lines promoted, lines without room in their document, logs archived."""

    writes: tuple[DocumentWritten, ...] = ()
    promoted: int = 0
    left: int = 0
    archived: int = 0


def consolidated_logs(views: ViewReader, tick: Tick, since_ms: int) -> LogsFound:
    """The writes for the daily logs of a workspace, or of the crew that the tick names and its agents.

    Args:
        views: The views of documents and agents.
        tick: The run.
        since_ms: Owners with a log written since then, or with a log to archive, are looked at; in ms since the epoch.
    """
    before = tick.due_ms - ARCHIVE_DAYS * DAY_MS
    of_run = {"workspace": tick.workspace_id, "crew": tick.crew_id}
    old = views.rows(_OLD, {**of_run, "day": format_ms(before)[:10], "before": before})
    new = views.rows(_WRITTEN, {**of_run, "since": since_ms, "due": tick.due_ms})
    writes: list[DocumentWritten] = []
    promoted = left = 0
    for owner in sorted({owner for owner, *_ in [*old, *new]}):
        write, lines, no_room = _promotion(views, tick, owner)
        writes += [write] if write is not None else []
        promoted, left = promoted + lines, left + no_room
    reason = f"archived: {ARCHIVE_DAYS} days old"
    writes += [_write(tick, owner, "daily", day, DocumentAction.RETRACT, reason=reason) for owner, day in old]
    return LogsFound(tuple(writes), promoted, left, len(old))


def _promotion(views: ViewReader, tick: Tick, owner: str) -> tuple[DocumentWritten | None, int, int]:
    """The append of lines that recur in the logs of an owner, the number of lines, and the number without room."""
    tier = _TARGETS[scope_of(owner)[0]]
    of_target = {"workspace": tick.workspace_id, "owner": owner, "tier": tier}
    content, size, is_closed = next(iter(views.rows(_TARGET, of_target)), ("", 0, False))
    if is_closed:
        return None, 0, 0
    params = {"workspace": tick.workspace_id, "owner": owner, "seq": tick.seq}
    lines = [line for row in views.rows(_PIECES, params) for line in _lines(*row)][:LINES_MAX][::-1]
    texts = [content, *(piece for (piece,) in views.rows(_PROMOTED, of_target))]
    analyzer = Analyzer(Stemmer)
    keys = keys_by_word(analyzer)
    known = [terms_of(analyzer, line.text) for text in texts for line in _lines("", "", text)]
    room = TIERS[tier].cap_of(SOURCE) * SOFT_CAP_PERCENT // 100 - size
    added, evidence, left = "", [], 0
    for recurrence in _recurring(analyzer, lines):
        members = [lines[int(at)].text for at in recurrence.evidence]
        said = [says_why(text) or states_fact(text) for text in members]
        sayings = [Saying(owner, text) for text in members]
        text = pattern_of(sayings, recurrence.evidence.index(recurrence.typical), keys, "")
        terms = terms_of(analyzer, text)
        bullet = f"- {text} (noted on {recurrence.days} days)\n"
        if (
            not text
            or not teaches(said, "")
            or is_routine(text)
            or any(is_covered(terms, other) for other in known)
            or find_secrets(bullet)
        ):
            continue
        if finding_in(content[-SCAN_OVERLAP:] + added + bullet):
            continue
        if len((added + bullet).encode()) >= room:
            left += 1
            continue
        added += bullet
        evidence += [lines[int(at)].write_id for at in recurrence.evidence]
    if not added:
        return None, 0, left
    causes = tuple(dict.fromkeys(evidence))[:MAX_CAUSES]
    write = _write(
        tick, owner, tier, None, DocumentAction.APPEND, content=added, causes=causes, reason="recurs in daily logs"
    )
    return write, added.count("\n"), left


def _recurring(analyzer: Analyzer, lines: Sequence[LogLine]) -> list[Recurrence]:
    """Recurring lines; occurrences are named by their index."""
    seen = enumerate((date.fromisoformat(line.date).toordinal(), terms_of(analyzer, line.text)) for line in lines)
    return recurrences([Occurrence(str(at), day, terms) for at, (day, terms) in seen])


def _lines(write_id: str, day: str, text: str) -> list[LogLine]:
    """The lines of a text, the last first; without headings, blank lines and lines that are too long."""
    lines = [
        LogLine(write_id, day, " ".join(line[match.end() :].split()))
        for line in text.splitlines()
        if not _HEADING.match(line) and (match := _PREFIX.match(line))
    ]
    return [line for line in reversed(lines) if 0 < len(line.text) <= LINE_CHARS]


def _write(
    tick: Tick,
    owner: str,
    tier: str,
    key: str | None,
    action: DocumentAction,
    *,
    content: str = "",
    causes: tuple[str, ...] = (),
    reason: str,
) -> DocumentWritten:
    name = f"{owner}/{tier}/{key or ''}"
    return DocumentWritten(
        seq=0,
        workspace_id=tick.workspace_id,
        owner=owner,
        tier=tier,
        key=key,
        action=action.value,
        content=content,
        source=SOURCE,
        write_id=derived_id("consolidate", 1, f"{tick.workspace_id}/{tick.entry_id}", name),
        actor_type=ActorType.SYSTEM.value,
        published_ms=0,
        actor_id="consolidate@1",
        derived_from=causes,
        reason=reason,
    )

"""Erases what is past the retention of its workspace: entries by type, documents by tier, superseded versions.

A policy is the setting ``retention`` of a workspace (``schemas/core/recorded_settings``); ``retention_days`` is that of
superseded versions of documents, whose texts a sweep has removed from the views before. What a policy selects is erased
like anything else, with a request, a receipt, and everything that was made of it.

Invariant: an entry that is pinned or permanent stays, and what it was made of; so do pins.md and a write from which a
present text was restored. Age is counted from the receipt, not by the author's clock.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from ...schemas.core.entry import Priority
from ...schemas.core.errors import CrewJournalError
from ...schemas.core.recorded_settings import MemorySettings, retention_of_tier, retention_of_type
from ...schemas.core.table import PRESENT
from ...schemas.core.timestamps import DAY_MS, format_ms, to_ms
from ...schemas.documents.rules import RETAINED_TIERS
from ...schemas.documents.tables import DOCUMENTS, SHOWN_WRITES, VERSIONS
from ...schemas.entries.events import MAX_REASON
from ...schemas.entries.tables import ARCHIVED, ENTRIES
from ...schemas.erasure.criteria import RUN_RECORDS, TEXTS
from ...schemas.erasure.operations import APPLY_RETENTION, ApplyRetentionRequest, RetentionAnswer
from ...schemas.erasure.tables import ERASURE_ROWS
from ...schemas.standing.tables import LIVE_PRIORITIES
from ...schemas.sweeps.rules import VERSIONS_DUE, due_times
from ..desk import Caller
from ..documents.use_cases import Administration
from ..node import Answers, Node
from .use_cases import Erasures

MOST_AT_ONCE: Final = 10_000
"""Messages that one run selects, the oldest first; the next run goes on. What was made of them goes as well."""
REASON: Final = "retention"
_DATE_CHARS: Final = 10
"""``YYYY-MM-DD`` of a formatted time."""
_CONTROL: Final = ", ".join(f"'{name}'" for name in sorted(TEXTS | RUN_RECORDS))
"""Control types with a text of their own; decisions and records of the node are not subject to a retention."""
_COLUMNS: Final = "seq, id, entry_type, priority, refs, published_ms"
_ALL: Final = f"""(SELECT {_COLUMNS} FROM {ENTRIES} WHERE workspace_id = $workspace
        AND (NOT control OR entry_type IN ({_CONTROL})) AND seq NOT IN (SELECT seq FROM {SHOWN_WRITES})
    UNION ALL SELECT {_COLUMNS} FROM {ARCHIVED} WHERE workspace_id = $workspace)"""
_TYPES: Final = f"SELECT DISTINCT entry_type FROM {_ALL}"
_LIVE: Final = (
    f"SELECT entry_id AS id, priority AS live FROM {LIVE_PRIORITIES} WHERE workspace_id = $workspace AND {PRESENT}"
)
_HELD: Final = f"""SELECT id FROM {_ALL} LEFT JOIN ({_LIVE}) USING (id)
    WHERE '{Priority.PERMANENT.value}' IN (priority, coalesce(live, priority))
        OR coalesce(live, priority) = '{Priority.PIN.value}'
    UNION SELECT unnest(json_extract_string(refs, '$.derived_from[*]')) FROM {_ALL} JOIN held USING (id)"""
"""An entry that was permanent when it was emitted stays, as in a compaction (contract §11)."""
_PAST: Final = f"""WITH RECURSIVE held(id) AS ({_HELD})
    SELECT published_ms, id, rule, id IN (FROM held)
    FROM {_ALL} JOIN (SELECT unnest($types) AS entry_type, unnest($rules) AS rule, unnest($cutoffs) AS cutoff)
        USING (entry_type) WHERE published_ms < cutoff ORDER BY seq"""
_DOCUMENTS: Final = f"""SELECT v.published_ms, v.write_id, rule, false FROM {VERSIONS} v JOIN {DOCUMENTS} d
    ON v.workspace_id = d.workspace_id AND v.owner = d.owner AND v.tier = d.tier
        AND v.doc_key IS NOT DISTINCT FROM d.doc_key
    JOIN (SELECT unnest($types) AS tier, unnest($rules) AS rule, unnest($cutoffs) AS cutoff) t ON t.tier = d.tier
    WHERE d.workspace_id = $workspace AND d.updated_ms < cutoff ORDER BY v.seq"""
_SUPERSEDED: Final = f"""SELECT published_ms, write_id, $rule, false FROM {VERSIONS}
    WHERE workspace_id = $workspace AND piece IS NULL AND published_ms < $cutoff AND write_id NOT IN (
        SELECT unnest(json_extract_string(derived_from, '$[*]')) FROM {VERSIONS}
        WHERE workspace_id = $workspace AND piece IS NOT NULL) ORDER BY seq"""
_DONE: Final = f"SELECT count(*) FROM {ERASURE_ROWS} WHERE workspace_id = ? AND starts_with(reason, ?)"
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class PastRetention:
    """What is past its retention.

    Attributes:
        ids: Names of the messages, the oldest first, at most ``MOST_AT_ONCE``.
        by_rule: Number of messages by rule, those beyond ``MOST_AT_ONCE`` included.
        held: Number of entries that stay because they or what was made of them are pinned or permanent.
    """

    ids: tuple[str, ...] = ()
    by_rule: Counter[str] = field(default_factory=Counter)
    held: int = 0

    def reason(self, run: str = REASON) -> str:
        """The reason of the erasure by a run."""
        return f"{run}: {', '.join(sorted(self.by_rule))}"[:MAX_REASON]


class Retention:
    """The use-case and the nightly run.

    Args:
        node: What use-cases share.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views = node.views
        self._erasures = node.use(Erasures)
        self._administration = node.use(Administration)
        self._checked: dict[str, int] = {}

    async def apply(self, caller: Caller, request: ApplyRetentionRequest) -> RetentionAnswer:
        """Erase what is past its retention now, or say what would go.

        Raises:
            BrokerUnavailable: If the request could not be recorded.
        """
        workspace_id = caller.workspace_id
        settings = await asyncio.to_thread(self._administration.settings_of, workspace_id)
        past = await asyncio.to_thread(self.past, workspace_id, settings, to_ms(self._node.clock()))
        erasure = None
        if past.ids:
            erasure = await self._erasures.erase(
                workspace_id, past.reason(), past.ids, caller=caller, dry_run=request.dry_run
            )
        return RetentionAnswer(
            workspace_id=workspace_id,
            retention=dict(settings.retention or {}),
            retention_days=settings.retention_days,
            past=dict(past.by_rule),
            held=past.held,
            left=past.by_rule.total() - len(past.ids),
            erasure=erasure,
        )

    async def erase_due(self) -> None:
        """Erase what is past its retention, once after each due time, in every workspace with a policy.

        A run that was missed during a downtime is not repeated, because the next one selects the same messages.

        Raises:
            BrokerUnavailable: If an erasure could not be recorded; the next call retries.
        """
        now_ms = to_ms(self._node.clock())
        [due_ms] = due_times(VERSIONS_DUE, now_ms - DAY_MS, now_ms)
        run = f"{REASON} of {format_ms(due_ms)[:_DATE_CHARS]}"
        for workspace_id, settings in await asyncio.to_thread(self._administration.retaining):
            if self._checked.get(workspace_id) == due_ms:
                continue
            [(requested,)] = await asyncio.to_thread(self._views.rows, _DONE, [workspace_id, f"{run}:"])
            past = await asyncio.to_thread(self.past, workspace_id, settings, due_ms)
            if past.ids and not requested:
                try:
                    await self._erasures.erase(workspace_id, past.reason(run), past.ids)
                except CrewJournalError as error:
                    if error.status >= 500:  # the broker or the views are away
                        raise
                    _log.warning("retention_failed", workspace=workspace_id, error=error.message)
            self._checked[workspace_id] = due_ms

    def past(self, workspace_id: str, settings: MemorySettings, now_ms: int) -> PastRetention:
        """What is past its retention at a time, milliseconds since the epoch; blocking."""
        found: dict[str, tuple[int, str]] = {}
        held = 0
        for published_ms, name, rule, is_held in self._selected(workspace_id, settings, now_ms):
            if is_held:
                held += 1
            else:
                found.setdefault(name, (published_ms, rule))
        oldest = sorted(found, key=lambda name: found[name])
        return PastRetention(tuple(oldest[:MOST_AT_ONCE]), Counter(rule for _, rule in found.values()), held)

    def _selected(
        self, workspace_id: str, settings: MemorySettings, now_ms: int
    ) -> Iterator[tuple[int, str, str, bool]]:
        named = {"workspace": workspace_id}
        policy = settings.retention or {}
        types = [entry_type for (entry_type,) in self._views.rows(_TYPES, named)] if policy else []
        for sql, names, rule_of in (
            (_PAST, types, retention_of_type),
            (_DOCUMENTS, RETAINED_TIERS, retention_of_tier),
        ):
            rules = {name: rule for name in names if (rule := rule_of(policy, name)) is not None}
            if rules:
                yield from self._views.rows(sql, {**named, **_columns(rules, policy, now_ms)})
        if settings.retention_days is not None:
            rule, cutoff = f"versions {settings.retention_days} d", now_ms - settings.retention_days * DAY_MS
            yield from self._views.rows(_SUPERSEDED, {**named, "rule": rule, "cutoff": cutoff})


def _columns(rules: Mapping[str, str], policy: Mapping[str, int], now_ms: int) -> dict[str, list[Any]]:
    """Type or tier, its rule in words, and the time before which it is past its retention."""
    return {
        "types": list(rules),
        "rules": [f"{rule} {policy[rule]} d" for rule in rules.values()],
        "cutoffs": [now_ms - policy[rule] * DAY_MS for rule in rules.values()],
    }


ANSWERS: Final[Answers] = ((APPLY_RETENTION, Retention.apply),)

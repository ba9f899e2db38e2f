"""Episodes and working memory: what runs have recorded, as far as the token may read it.

Invariant: an episode is never deleted by its time to live; a query leaves it out. Working memory is that of a run that has
not ended.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from ...schemas.operations.layered import Episode, LayeredQueryAnswer, LayeredQueryRequest, LayeredReadAnswer
from ...schemas.principal import Principal
from ..desk import Caller
from ..node import Node
from ..query.entries.filters import EntryFilters
from ..query.entries.rows import EntryPage, StoredEntry

RUN_ENDS: Final = ("run.completed", "run.failed", "run.cancelled")
"""Types of entries that end a run."""
WORKING_ENTRIES: Final = 50
"""Newest entries of a run that are its working memory."""
_HOUR_MS: Final = 3_600_000


class Runs:
    """The queries."""

    def __init__(self, node: Node) -> None:
        self._queries = node.queries

    async def episodes(self, caller: Caller, request: LayeredQueryRequest, since_ms: int | None) -> LayeredQueryAnswer:
        """Episodes by run and type, newest first."""
        filters = EntryFilters(run_id=request.run_id, types=request.types, since_ms=since_ms)
        page = await self._queries.list(
            caller.principal, filters, workspace=caller.workspace_id, limit=request.limit + 1
        )
        shown = tuple(_episode(entry, request.run_id) for entry in page.entries[: request.limit])
        more = len(page.entries) > request.limit
        return LayeredQueryAnswer(kind="episode", episodes=shown, truncated=more, view_seq=page.view_seq)

    async def working(self, caller: Caller, run_id: str) -> LayeredReadAnswer:
        """The working memory of a run, newest first; none if it has ended."""
        page = await self._of(caller.principal, caller.workspace_id, EntryFilters(run_id=run_id), WORKING_ENTRIES)
        ended = any(entry.record["entry_type"] in RUN_ENDS for entry in page.entries)
        if not ended and len(page.entries) == WORKING_ENTRIES:
            ends = EntryFilters(run_id=run_id, types=RUN_ENDS)
            ended = bool((await self._of(caller.principal, caller.workspace_id, ends, 1)).entries)
        return LayeredReadAnswer(
            kind="working",
            working=() if ended else tuple(_episode(entry, run_id) for entry in page.entries),
            run_ended=ended,
            view_seq=page.view_seq,
        )

    async def _of(self, principal: Principal, workspace_id: str, filters: EntryFilters, limit: int) -> EntryPage:
        return await self._queries.list(principal, filters, workspace=workspace_id, limit=limit)


def since_of(ttl_hours: float | None, now_ms: int) -> int | None:
    """From when on episodes are returned; None for all."""
    return None if ttl_hours is None else now_ms - int(ttl_hours * _HOUR_MS)


def _episode(entry: StoredEntry, run_id: str | None) -> Episode:
    record: dict[str, Any] = orjson.loads(entry.to_json())
    of_payload = record["payload"].get("run_id")
    return Episode(
        entry_id=record["id"],
        ts=record["ts"],
        entry_type=record["entry_type"],
        summary=record["summary"],
        agent_id=record["agent_id"],
        run_id=run_id or record["trace_id"] or (of_payload if isinstance(of_payload, str) else None),
        payload=record["payload"],
        seq=entry.seq,
    )

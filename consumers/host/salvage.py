"""Reads entries that the stream has lost from the views and from view files that were kept.

Invariant: nothing is changed, and nothing that was erased is written. The identities that the stream holds are folded
from it into a file of their own, so what counts as lost does not depend on what the damage looks like.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import structlog

from ...schemas.catalogue import SERVICE_ALONE, info_of
from ...schemas.entry import JournalEntry
from ...schemas.errors import CrewJournalError
from ...schemas.ids import is_service_id, is_workspace
from ...schemas.timestamps import format_ms
from ...schemas.views import ENTRIES
from .bulk import Progress, ReplaySource, fold_range
from .gaps import Explained, explained, lost_entries
from .host import Host
from .opening import AHEAD
from .rebuild import BEFORE_LOSS, beside
from .store import ViewStore

_AT_ONCE: Final = 200
"""Entries read with their text at once: 50 MB of the largest."""
_JSON: Final = ("payload", "refs", "supersedes")
_log = structlog.get_logger(__name__)


def kept_files(views: Path) -> list[Path]:
    """Views files beside ``views`` that were kept because they know more than the stream, newest first."""
    found = [one for kind in (AHEAD, BEFORE_LOSS) for one in views.parent.glob(f"{views.name}{kind}*")]
    return sorted((one for one in found if one.suffix != ".wal"), key=lambda one: one.stat().st_mtime, reverse=True)


async def salvage(
    live: Host, source: ReplaySource, *, memory_mb: int, progress: Progress | None = None
) -> AsyncGenerator[tuple[bool, dict[str, Any]], None]:
    """The lost entries that are still known, each once, those of the live views first.

    Yields:
        Whether only the service may publish it, and its fields as they are submitted.

    Raises:
        Unavailable: If the disk is too full or the stream cannot be read.
    """
    async with beside(live, [], "salvage", memory_mb) as fresh:
        await fold_range(fresh.host, source, live.checkpoint, progress)
        held = await asyncio.to_thread(fresh.store.columns, "SELECT k0, k1 FROM admitted")
    explains = await asyncio.to_thread(explained, live.store)
    seen: set[tuple[str, str]] = set()
    async for found in _lost(live.store, held, explains, seen):
        yield found
    for path in kept_files(live.store.path):
        try:
            store = await asyncio.to_thread(ViewStore, path, {"threads": 1, "access_mode": "READ_ONLY"})
        except CrewJournalError as error:  # the others may know it
            _log.warning("salvage.file_unreadable", file=path.name, error=error.message)
            continue
        try:
            async for found in _lost(store, held, explains, seen):
                yield found
        finally:
            store.close()


async def _lost(
    store: ViewStore, held: Any, explains: Explained, seen: set[tuple[str, str]]
) -> AsyncIterator[tuple[bool, dict[str, Any]]]:
    rows = await asyncio.to_thread(lost_entries, store, held, "seq, workspace_id, id", explains)
    wanted = [seq for seq, workspace, entry_id in rows if (workspace, entry_id) not in seen]
    seen.update((workspace, entry_id) for _, workspace, entry_id in rows)
    for start in range(0, len(wanted), _AT_ONCE):
        for record in await asyncio.to_thread(_records, store, wanted[start : start + _AT_ONCE]):
            yield record


def _records(store: ViewStore, sequences: Sequence[int]) -> list[tuple[bool, dict[str, Any]]]:
    table = store.columns(f"SELECT * FROM {ENTRIES} WHERE list_contains(?, seq) ORDER BY seq", [list(sequences)])
    return [(_only_of_the_service(row), submission(row)) for row in table.to_pylist()]


def _only_of_the_service(row: Mapping[str, Any]) -> bool:
    return (
        info_of(row["entry_type"]).publisher in SERVICE_ALONE
        or is_service_id(row["id"])
        or not is_workspace(row["workspace_id"])
    )


def submission(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of ``journal_entries``, of a former version too, as an entry that can be submitted."""
    fields = {name: value for name, value in row.items() if name in JournalEntry.model_fields and value is not None}
    fields |= {name: json.loads(fields[name]) for name in _JSON if name in fields}
    if not fields.get("supersedes"):
        fields.pop("supersedes", None)
    if (valid_ms := row.get("valid_ms")) is not None:
        fields["valid_at"] = format_ms(valid_ms)
    return fields | {"ts": format_ms(row["ts_ms"])}

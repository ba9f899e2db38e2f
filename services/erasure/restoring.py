"""Erasures of a journal, read from its records, to be applied to an older backup of it.

Invariant: an erasure is applied by ids and keyed hashes, never by sequences, which in another journal are other messages.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from ...schemas.core.errors import CrewJournalError
from ...schemas.core.ids import is_workspace
from ...schemas.core.sequence_set import MAX_IDS
from ...schemas.entries.events import ErasureRequested, ErasureScoped


@dataclass(slots=True)
class RecordedErasure:
    """What the records of an erasure say.

    Attributes:
        reason: Why it was requested.
        ids: Of entries and document writes in its scope.
        hashes: Criterion → keyed hash of its value.
    """

    reason: str = ""
    ids: dict[str, None] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)


def recorded_erasures(path: Path) -> dict[tuple[str, str], RecordedErasure]:
    """(workspace, erasure) → what its records say; other lines of the file do not count.

    Args:
        path: JSON lines as ``list --all --json`` and ``export`` write them.

    Raises:
        CrewJournalError: If a line is not a record, or the file has no erasure.
    """
    found: dict[tuple[str, str], RecordedErasure] = {}
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                if line.strip():
                    _take(found, json.loads(line))
            except (ValueError, KeyError, TypeError, ValidationError):
                raise CrewJournalError(f"{path}, line {number}, is not a record of an erasure", hint=_HINT) from None
    if not found:
        raise CrewJournalError(f"{path} has no erasure", hint=_HINT)
    return found


def requests_of(erasures: dict[tuple[str, str], RecordedErasure]) -> list[tuple[str, ErasureRequested]]:
    """The requests that repeat the erasures, each with its workspace; one event holds ``MAX_IDS`` ids."""
    requests = []
    for (workspace_id, erasure_id), erasure in erasures.items():
        ids = list(erasure.ids)
        for first in range(0, max(len(ids), 1), MAX_IDS):
            request = ErasureRequested(
                erasure_id=erasure_id,
                entry_ids=tuple(ids[first : first + MAX_IDS]),
                reason=erasure.reason,
                **{f"{name}_hash": value for name, value in erasure.hashes.items()},
            )
            requests.append((workspace_id, request))
    return requests


_HINT: Final = "write it with `crew-journal list --all --json --type erasure.requested --type erasure.scoped`"


def _take(found: dict[tuple[str, str], RecordedErasure], record: dict[str, object]) -> None:
    entry_type, workspace_id = record["entry_type"], record["workspace_id"]
    if entry_type not in {ErasureRequested.ENTRY_TYPE, ErasureScoped.ENTRY_TYPE}:
        return
    if not isinstance(workspace_id, str) or not is_workspace(workspace_id):
        raise ValueError(workspace_id)
    if entry_type == ErasureRequested.ENTRY_TYPE:
        asked = ErasureRequested.model_validate(record["payload"])
        erasure = found.setdefault((workspace_id, asked.erasure_id), RecordedErasure())
        erasure.reason = asked.reason
        erasure.hashes = asked.hashes
        erasure.ids.update(dict.fromkeys(asked.entry_ids))
    else:
        scoped = ErasureScoped.model_validate(record["payload"])
        erasure = found.setdefault((workspace_id, scoped.erasure_id), RecordedErasure())
        erasure.ids.update(dict.fromkeys(scoped.scope.ids))

"""What becomes of a refused write: it is recorded, and the text of an injection is kept for operators (contract §14).

Invariant: a text is in a file of mode 0600 below the data directory and nowhere else: not in the journal, from which views,
recall and prompts are made. A write is refused whether or not its refusal can be recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

import structlog

from ....schemas.errors import BrokerError, CapExceeded, Quarantined, WriteRefused
from ....schemas.events.memory_documents import MemoryWriteRejected, MemoryWriteVerifierBlocked, RejectionReason
from ....schemas.events.payload import ControlPayload
from ....schemas.rules.documents import sha256_of
from ....schemas.timestamps import format_ts
from ...data_dir import write_private
from ...desk import Caller
from ...journal.intake.recorder import Recorder
from .checks import CONTRADICTION, SECRET
from .drafts import Draft

QUARANTINE_FOLDER: Final = "quarantine"
REFUSALS: Final = (CapExceeded, Quarantined, WriteRefused)
"""The errors of a write that are recorded."""
_FINDING_CHARS: Final = 200
_log = structlog.get_logger(__name__)


class Quarantine:
    """The folder ``quarantine`` of a data directory.

    Args:
        data_dir: The data directory.
        clock: The time now, UTC.
    """

    def __init__(self, data_dir: Path, clock: Callable[[], datetime]) -> None:
        self._folder = data_dir / QUARANTINE_FOLDER
        self._clock = clock

    def keep(self, text: str, about: dict[str, str]) -> Path:
        """Write ``<sha256>.md``: the time, ``about`` and the hash as a header, then the text; blocking.

        The same text has one file, whose header is that of the last refusal.

        Raises:
            OSError: If it cannot be written.
        """
        sha256 = sha256_of(text)
        header = {"time": format_ts(self._clock()), **about, "sha256": sha256}
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = self._folder / f"{sha256}.md"
        write_private(path, "\n".join(["---", *(f"{name}: {value}" for name, value in header.items()), "---", text]))
        return path


class Refusals:
    """Records refused writes.

    Args:
        journal: Where they are recorded.
        quarantine: Keeps the texts of injections.
    """

    def __init__(self, journal: Recorder, quarantine: Quarantine) -> None:
        self._journal = journal
        self._quarantine = quarantine

    async def record(self, caller: Caller, draft: Draft, error: CapExceeded | Quarantined | WriteRefused) -> None:
        """Record why a write was refused; of an injection, keep the text."""
        address, why = draft.address, "it contradicts a pinned fact"
        written = {"tier": address.tier, "key": address.key, "owner": address.owner, "source": draft.source}
        if error.finding == CONTRADICTION:
            payload: ControlPayload = MemoryWriteVerifierBlocked(**written, problem="contradicts a pinned fact")
        else:
            why, size = _reason(error), None
            if isinstance(error, CapExceeded):
                size = error.facts.get("projected_size")
            elif isinstance(error, Quarantined):
                await self._keep(caller, draft, error.finding or "")
            payload = MemoryWriteRejected(
                **written,
                reason=why,
                finding=None if error.finding is None else error.finding[:_FINDING_CHARS],
                bytes=size if isinstance(size, int) else None,
                cap_bytes=address.rule.cap_of(draft.source) if why == "cap" else None,
            )
        summary = f"a write of {address.label} was refused: {why}"
        try:
            await self._journal.record(address.workspace_id, payload, summary=summary, **caller.author_fields)
        except BrokerError as failure:
            _log.warning("documents.refusal_not_recorded", owner=address.owner, error=type(failure).__name__)

    async def _keep(self, caller: Caller, draft: Draft, finding: str) -> None:
        address = draft.address
        about = {
            "workspace": address.workspace_id,
            "owner": address.owner,
            "document": address.label,
            "finding": finding,
            "source": draft.source,
            "written by": caller.acts_as[1],
        }
        try:
            await asyncio.to_thread(self._quarantine.keep, draft.content, about)
        except OSError as error:
            _log.warning("documents.not_quarantined", owner=address.owner, error=str(error))


def _reason(error: CapExceeded | Quarantined | WriteRefused) -> RejectionReason:
    if isinstance(error, CapExceeded):
        return "cap"
    if isinstance(error, Quarantined):
        return "injection"
    return "scrubber" if (error.finding or "").startswith(SECRET) else "provider"

"""The checks of the text of a write: secrets, injections, pinned facts. ``present`` checks its size.

Invariant: a write that fails a check is refused; operators' writes are checked, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from itertools import islice, takewhile
from pathlib import Path
from typing import Final

import structlog

from ...schemas.core.errors import BrokerError, CapExceeded, Quarantined, WriteRefused
from ...schemas.core.payload import ControlPayload
from ...schemas.core.ports import ViewReader
from ...schemas.core.timestamps import format_ts
from ...schemas.documents.events import (
    MemoryConfigUpdated,
    MemoryWriteRejected,
    MemoryWriteVerifierBlocked,
    RejectionReason,
)
from ...schemas.documents.rules import Scope, owner_of, sha256_of
from ...schemas.documents.tables import DOCUMENTS, MEMORY_CONFIG
from ...schemas.relations.judging import judge
from ...schemas.relations.rules import CONTRADICTS
from ...schemas.relations.verdicts import Statement
from ...schemas.text.injection import finding_in
from ..data_dir import write_private
from ..desk import Caller
from ..journal.intake.recorder import Recorder
from ..journal.intake.secrets import HINT, Scrubs
from ..kept import KeptValues, in_thread
from .drafts import Draft
from .present import WrittenDocument

SHARED_WORDS: Final = 0.5
"""Minimum share of common words for comparing two lines; the rule itself requires more."""
SECRET: Final = "secret/"
"""Prefix of the finding for content with credentials, followed by their kinds."""
CONTRADICTION: Final = "verifier/pinned"
"""The finding of a content that contradicts a pinned fact."""
_VERIFIER: Final = f"SELECT verifier FROM {MEMORY_CONFIG} WHERE workspace_id = ?"
_PINS: Final = f"""SELECT content FROM {DOCUMENTS} WHERE workspace_id = ? AND tier = 'pins'
    AND owner IN (SELECT unnest(?::VARCHAR[]))"""


class Checks:
    """The checks.

    Args:
        views: The pinned facts, and the settings of workspaces; followed until ``close``.
        scrubs: Finds credentials.
    """

    def __init__(self, views: ViewReader, scrubs: Scrubs) -> None:
        self._views = views
        self._scrubs = scrubs
        self._verifiers = KeptValues(views, (MEMORY_CONFIG,), in_thread(self._verifier))
        self.close = self._verifiers.close

    async def scrub(self, draft: Draft) -> tuple[Draft, str | None]:
        """The write to store, without credentials unless the workspace keeps them, and a warning.

        Raises:
            WriteRefused: If the content holds credentials and the workspace blocks those.
        """
        workspace_id, reason, end = draft.address.workspace_id, draft.reason, draft.compared_end
        scrubbed = await self._scrubs.scrubbed(workspace_id, draft.content)
        if scrubbed.mode == "block" and scrubbed.kinds:
            named = ", ".join(scrubbed.kinds)
            refusal = WriteRefused(f"the content holds credentials: {named}", hint=HINT, field="content")
            refusal.finding = f"{SECRET}{named}"
            raise refusal
        if reason:
            reason = (await self._scrubs.scrubbed(workspace_id, reason)).text
        content = scrubbed.text
        changed = replace(draft, content=content, reason=reason, compared_end=end and content[-len(end) :])
        return changed, scrubbed.warning

    async def check_text(self, caller: Caller, draft: Draft, document: WrittenDocument) -> None:
        """Refuse a text that the scanners block, or that contradicts a pinned fact if the workspace checks this.

        Raises:
            Quarantined: If the scanners block it.
            WriteRefused: If it contradicts a pinned fact.
        """
        if draft.appends:
            finding = await document.scanning((document.end, draft.content))
        else:
            finding = await asyncio.to_thread(finding_in, draft.content)
        address = draft.address
        if finding is not None:
            raise blocked(address.label, finding)
        if address.tier == "pins" or await self._verifiers.of(address.workspace_id) == "off":
            return
        owners = [owner_of(Scope.WORKSPACE, None), address.owner]
        if caller.principal.crew_id is not None:
            owners.append(owner_of(Scope.CREW, caller.principal.crew_id))
        pin = await asyncio.to_thread(self._contradicted, address.workspace_id, owners, draft.content)
        if pin is not None:
            refusal = WriteRefused(
                f"the content contradicts a pinned fact: {pin}",
                hint="leave it out, or ask an OWNER or ADMIN to change pins.md",
                field="content",
            )
            refusal.finding = CONTRADICTION
            raise refusal

    def _verifier(self, workspace_id: str) -> str:
        """The workspace's setting whether texts are compared with pinned facts; blocking."""
        rows = self._views.rows(_VERIFIER, [workspace_id])
        return str(rows[0][0]) if rows else MemoryConfigUpdated().verifier

    def _contradicted(self, workspace_id: str, owners: list[str], content: str) -> str | None:
        """The pinned line that a line of ``content`` contradicts; blocking."""
        texts = [text for (text,) in self._views.rows(_PINS, [workspace_id, owners])]
        pins = [(line, _words(line)) for text in texts for line in map(_plain, text.splitlines()) if line]
        for line in filter(None, map(_plain, content.splitlines())):
            words = _words(line)
            for pin, pinned in pins:
                if 2 * len(words & pinned) < SHARED_WORDS * (len(words) + len(pinned)):
                    continue
                verdict = judge(Statement(line), Statement(pin), CONTRADICTS)
                if verdict is not None and not verdict.is_borderline:
                    return pin
        return None


def blocked(label: str, finding: str) -> Quarantined:
    """The refusal of a text in which the scanners found ``category/pattern``."""
    category, _, pattern = finding.partition("/")
    refusal = Quarantined(
        f"{label} would hold a possible prompt injection: category={category} pattern={pattern}",
        hint="say it in other words, without instructions to a reader; nothing was written",
        field="content",
    )
    refusal.finding = finding
    return refusal


def _plain(line: str) -> str:
    """A line without the marks of a list or heading."""
    return line.strip().lstrip("#-*>+ ").strip()


def _words(line: str) -> set[str]:
    return set(line.casefold().split())


# Records refused writes, and keeps the texts of injections for operators (contract §14).


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

        Each text has one file, with the header of its last refusal.

        Raises:
            OSError: If it cannot be written.
        """
        sha256 = sha256_of(text)
        header = {"time": format_ts(self._clock()), **about, "sha256": sha256}
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = self._folder / f"{sha256}.md"
        write_private(path, "\n".join(["---", *(f"{name}: {value}" for name, value in header.items()), "---", text]))
        return path


def refused_texts(data_dir: Path, workspace_id: str) -> Iterator[Path]:
    """The kept files with refused texts of a workspace; blocking."""
    for path in sorted((data_dir / QUARANTINE_FOLDER).glob("*.md")):
        with path.open(encoding="utf-8", errors="replace") as file:
            header = takewhile(lambda line: line != "---\n", islice(file, 1, None))
            if f"workspace: {workspace_id}\n" in header:
                yield path


class Refusals:
    """Records refused writes.

    Args:
        journal: The journal that records them.
        quarantine: Keeps the texts of injections.
    """

    def __init__(self, journal: Recorder, quarantine: Quarantine) -> None:
        self._journal = journal
        self._quarantine = quarantine

    async def record(self, caller: Caller, draft: Draft, error: CapExceeded | Quarantined | WriteRefused) -> None:
        """Record why a write was refused; if it was an injection, keep the text."""
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

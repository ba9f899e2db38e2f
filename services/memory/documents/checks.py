"""The checks of a write: secrets, injections, pinned facts, caps.

Invariant: a write that fails one is refused, and the refusal is recorded without text; an operator's write is checked as any
other. The text of an injection is kept in the quarantine.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from ....schemas.errors import BrokerError, CapExceeded, DocumentError, Quarantined, WriteRefused
from ....schemas.events.memory_documents import MemoryWriteRejected, MemoryWriteVerifierBlocked, RejectionReason
from ....schemas.events.payload import ControlPayload
from ....schemas.ports import ViewReader
from ....schemas.rules.contradiction import contradiction
from ....schemas.rules.tiers import AGENT_TOTAL_BYTES, Scope, owner_of
from ....schemas.views import DOCUMENTS
from ....schemas.views.documents import MemoryConfigRow
from ...desk import Caller
from ...journal.intake.recorder import ScrubbingRecorder
from ...journal.intake.secrets import HINT
from .addressing import Address
from .answers import blocked, shown, too_large
from .present import WrittenDocument
from .quarantine import Quarantine

SHARED_WORDS: Final = 0.5
"""Share of words from which on two lines are compared; the rule itself asks for more."""
_PINS: Final = f"""SELECT content FROM {DOCUMENTS} WHERE workspace_id = ? AND tier = 'pins'
    AND owner IN (SELECT unnest(?::VARCHAR[]))"""
_log = structlog.get_logger(__name__)


class Checks:
    """The checks.

    Args:
        views: The pinned facts.
        journal: Records refusals.
        quarantine: Keeps the text of injections for operators.
    """

    def __init__(self, views: ViewReader, journal: ScrubbingRecorder, quarantine: Quarantine) -> None:
        self._views = views
        self._journal = journal
        self._quarantine = quarantine

    async def scrub(self, caller: Caller, address: Address, content: str, source: str) -> tuple[str, str | None]:
        """The content as it may be stored, and a warning.

        Raises:
            WriteRefused: If it holds credentials and the workspace blocks those.
        """
        scrubbed = await self._journal.scrubbed(address.workspace_id, content)
        if scrubbed.mode != "block" or not scrubbed.kinds:
            return scrubbed.text, scrubbed.warning
        named = ", ".join(scrubbed.kinds)
        await self._reject(caller, address, "scrubber", source, finding=f"secret/{named}")
        raise WriteRefused(
            f"the content holds credentials: {named}",
            hint=HINT,
            field="content",
        )

    async def without_secrets(self, address: Address, reason: str) -> str:
        """A reason as it may be stored: without credentials, unless the workspace keeps them."""
        return (await self._journal.scrubbed(address.workspace_id, reason)).text if reason else reason

    async def quarantine(
        self, caller: Caller, address: Address, content: str, finding: str | None, source: str
    ) -> None:
        """Refuse a text that the scanners block, and keep it for operators.

        Raises:
            Quarantined: If there is a finding.
        """
        if finding is None:
            return
        await self._keep(caller, address, content, finding, source)
        await self._reject(caller, address, "injection", source, finding=finding)
        raise blocked(address.label, finding)

    async def cap(
        self, caller: Caller, document: WrittenDocument, address: Address, size: int, source: str, *, whole: bool
    ) -> None:
        """Refuse a write that makes the document, or all of its owner's, too large.

        Args:
            caller: Who writes.
            document: The document.
            address: Which one it is.
            size: Bytes that the write adds, or gives.
            source: Where it comes from.
            whole: Whether it gives the whole text.

        Raises:
            CapExceeded: If it does.
        """
        current = document.size
        projected = size if whole else current + size
        cap = address.rule.cap_of(source)
        total = document.owner.total - (document.row.bytes if document.row else 0) + projected
        if projected <= cap and total <= AGENT_TOTAL_BYTES:
            return
        await self._reject(caller, address, "cap", source, bytes=projected, cap_bytes=cap)
        finding = document.row.finding if document.row else None
        text = shown(caller, address.label, document.content, finding)
        refusal = too_large(address.label, address.tier, cap, projected, current, text)
        if projected <= cap:
            refusal.message = f"the documents of {address.owner} would have {total} of {AGENT_TOTAL_BYTES} bytes"
            refusal.hint = "shorten or retract documents that are out of date"
        refusal.facts["total_bytes"] = total
        raise refusal

    async def verify(
        self, caller: Caller, address: Address, content: str, config: MemoryConfigRow, source: str
    ) -> None:
        """Refuse a text that contradicts a pinned fact, if the workspace wants that.

        Raises:
            WriteRefused: If it does.
        """
        if config.verifier == "off" or address.tier == "pins":
            return
        owners = [owner_of(Scope.WORKSPACE, None), address.owner]
        if caller.principal.crew_id is not None:
            owners.append(owner_of(Scope.CREW, caller.principal.crew_id))
        found = await asyncio.to_thread(self._contradicted, address.workspace_id, owners, content)
        if found is None:
            return
        await self._record(
            caller,
            address,
            MemoryWriteVerifierBlocked(
                tier=address.tier,
                key=address.key,
                owner=address.owner,
                problem="contradicts a pinned fact",
                source=source,
            ),
            f"a write of {address.label} was refused: it contradicts a pinned fact",
        )
        raise WriteRefused(
            f"the content contradicts a pinned fact: {found}",
            hint="leave it out, or ask an OWNER or ADMIN to change pins.md",
            field="content",
        )

    async def refused_by_provider(
        self, caller: Caller, address: Address, content: str, error: DocumentError, source: str
    ) -> None:
        """Record that the memory provider of the workspace refused a write; its message may quote the text."""
        reason: RejectionReason = "injection" if isinstance(error, Quarantined) else "provider"
        size: object = None
        if isinstance(error, CapExceeded):
            reason, size = "cap", error.facts.get("projected_size")
        if reason == "injection":
            await self._keep(caller, address, content, "provider/Quarantined", source)
        await self._reject(
            caller,
            address,
            reason,
            source,
            finding=f"provider/{type(error).__name__}",
            bytes=size if isinstance(size, int) else None,
            cap_bytes=address.rule.cap_bytes if reason == "cap" else None,
        )

    def _contradicted(self, workspace_id: str, owners: list[str], content: str) -> str | None:
        """The pinned line that a line of ``content`` contradicts; blocking."""
        texts = [text for (text,) in self._views.rows(_PINS, [workspace_id, owners])]
        pins = [(line, _words(line)) for text in texts for line in map(_plain, text.splitlines()) if line]
        for line in filter(None, map(_plain, content.splitlines())):
            words = _words(line)
            for pin, pinned in pins:
                if 2 * len(words & pinned) < SHARED_WORDS * (len(words) + len(pinned)):
                    continue
                found = contradiction(line, pin)
                if found is not None and not found.is_borderline:
                    return pin
        return None

    async def _keep(self, caller: Caller, address: Address, content: str, finding: str, source: str) -> None:
        about = {
            "workspace": address.workspace_id,
            "owner": address.owner,
            "document": address.label,
            "finding": finding,
            "source": source,
            "written by": caller.acts_as[1],
        }
        try:
            await asyncio.to_thread(self._quarantine.keep, content, about)
        except OSError as error:  # the write is refused all the same
            _log.warning("documents.not_quarantined", owner=address.owner, error=str(error))

    async def _reject(
        self,
        caller: Caller,
        address: Address,
        reason: RejectionReason,
        source: str,
        *,
        finding: str | None = None,
        bytes: int | None = None,  # noqa: A002  # the name of the event's field
        cap_bytes: int | None = None,
    ) -> None:
        rejected = MemoryWriteRejected(
            tier=address.tier,
            key=address.key,
            owner=address.owner,
            reason=reason,
            source=source,
            finding=None if finding is None else finding[:200],
            bytes=bytes,
            cap_bytes=cap_bytes,
        )
        await self._record(caller, address, rejected, f"a write of {address.label} was refused: {reason}")

    async def _record(self, caller: Caller, address: Address, payload: ControlPayload, summary: str) -> None:
        try:
            await self._journal.record(
                address.workspace_id,
                payload,
                summary=summary,
                **caller.author_fields,
            )
        except BrokerError as error:  # the write is refused all the same
            _log.warning("documents.refusal_not_recorded", owner=address.owner, error=type(error).__name__)


def _plain(line: str) -> str:
    """A line without the marks of a list or heading."""
    return line.strip().lstrip("#-*>+ ").strip()


def _words(line: str) -> set[str]:
    return set(line.casefold().split())

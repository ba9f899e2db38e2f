"""The checks of the text of a write: secrets, injections, pinned facts. ``present`` checks its size.

Invariant: a write that fails one is refused; an operator's write is checked as any other.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from ....schemas.errors import Quarantined, WriteRefused
from ....schemas.events.memory_documents import MemoryConfigUpdated
from ....schemas.ports import ViewReader
from ....schemas.rules.contradiction import contradiction
from ....schemas.rules.documents import finding_in
from ....schemas.rules.tiers import Scope, owner_of
from ....schemas.views import DOCUMENTS, MEMORY_CONFIG
from ...desk import Caller
from ...journal.intake.secrets import HINT, Scrubs
from ...kept import KeptValues, in_thread
from .drafts import Draft
from .present import WrittenDocument

SHARED_WORDS: Final = 0.5
"""Share of words from which on two lines are compared; the rule itself asks for more."""
SECRET: Final = "secret/"
"""Begins the finding of a content that holds credentials; their kinds follow."""
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
        """The write as it may be stored, without credentials unless the workspace keeps them, and a warning.

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
        """Refuse a text that the scanners block, or that contradicts a pinned fact where the workspace checks that.

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
        """Whether texts are compared with pinned facts, as the workspace sets it; blocking."""
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
                verdict = contradiction(line, pin)
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

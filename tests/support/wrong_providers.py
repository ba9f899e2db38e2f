"""Providers that each break one law of the port, made of the one on disk."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any, ClassVar

from support.disk_provider import DiskProvider

from crew_journal.schemas.core.errors import CapExceeded
from crew_journal.schemas.documents.provider import (
    ForgetRequest,
    ForgetResult,
    HealthStatus,
    ProviderScope,
    RecallResult,
    RetainRequest,
    RetainResult,
    SnippetsRequest,
)


class LosesLabels(DiskProvider):
    """Hits are named by their place, not by the label that retain returned."""

    async def recall(self, asked: SnippetsRequest) -> RecallResult:
        found = await super().recall(asked)
        hits = tuple(hit.model_copy(update={"source": f"hit-{n}"}) for n, hit in enumerate(found.hits))
        return found.model_copy(update={"hits": hits})


class CascadesSilently(DiskProvider):
    """Forgets a person without saying that what was derived went, too."""

    async def forget(self, asked: ForgetRequest) -> ForgetResult:
        if asked.data_subject_id and not asked.id:
            return ForgetResult(removed=1)
        return await super().forget(asked)


class HangsInHealth(DiskProvider):
    """Never answers how it is."""

    async def health(self) -> HealthStatus:
        await asyncio.Event().wait()
        raise AssertionError


class ReturnsOthers(DiskProvider):
    """Searches the documents of every scope that it was ever bound to."""

    _bound: ClassVar[defaultdict[str, list[ProviderScope]]] = defaultdict(list)

    def __init__(self, root: Path, scope: ProviderScope, **more: Any) -> None:
        super().__init__(root, scope, **more)
        self._bound[str(root)].append(scope)

    async def recall(self, asked: SnippetsRequest) -> RecallResult:
        own = await super().recall(asked)
        blank = asked.model_copy(update={"agent_id": None, "crew_id": None})
        others = [
            await DiskProvider(self.root, scope).recall(blank.model_copy(update={"workspace_id": scope.workspace_id}))
            for scope in self._bound[str(self.root)]
            if scope != self.scope
        ]
        return own.model_copy(update={"hits": (*own.hits, *(hit for found in others for hit in found.hits))[:20]})


class DuplicatesRetries(DiskProvider):
    """Ignores the write id."""

    async def retain(self, asked: RetainRequest) -> RetainResult:
        return await super().retain(asked.model_copy(update={"write_id": None}))


class SwallowsErrors(DiskProvider):
    """Reports success for a document that is too large."""

    async def retain(self, asked: RetainRequest) -> RetainResult:
        try:
            return await super().retain(asked)
        except CapExceeded:
            return RetainResult(id="AGENT.md", bytes=len(asked.content))


WRONG = {
    LosesLabels: "round trip",
    CascadesSilently: "cascade is honest",
    HangsInHealth: "health is prompt",
    ReturnsOthers: "scopes are apart",
    DuplicatesRetries: "retry writes once",
    SwallowsErrors: "caps hold",
}
"""Each with the law that names what is wrong."""

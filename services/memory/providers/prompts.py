"""The documents of a prompt block, from the provider of their workspace.

Invariant: a document that the provider reports as blocked has its finding and no text; nothing of it is in a block.
"""

from __future__ import annotations

import asyncio
from datetime import date, timedelta

from ....schemas.principal import Role
from ....schemas.provider import DocumentReader, LabelsRequest, ProviderScope, ReadRequest
from ....schemas.rules.memory_block import WINDOW_DAYS
from ....schemas.rules.tiers import Scope, scope_of, tier_of_label
from ..documents.owned import DocumentText, OwnedDocuments, PromptDocuments
from .calls import answered
from .choosing import Providers


class ProvidedPrompts:
    """Documents by owner.

    Args:
        journal: Those of workspaces whose provider is the journal.
        providers: Which provider serves which workspace.
    """

    def __init__(self, journal: PromptDocuments, providers: Providers) -> None:
        self._journal = journal
        self._providers = providers

    async def of(self, workspace_id: str, owner: str, today: date) -> OwnedDocuments:
        """The documents of an owner; of daily logs those within the window of a block.

        Raises:
            NotByProvider: If the provider cannot read whole documents.
            CrewJournalError: What the provider refuses.
        """
        if self._providers.is_journal(workspace_id):
            return await self._journal.of(workspace_id, owner, today)
        scope, name = scope_of(owner)
        bound = ProviderScope(
            workspace_id=workspace_id,
            agent_id=name if scope is Scope.AGENT else None,
            crew_id=name if scope is Scope.CREW else None,
            role=Role.OWNER.value,
        )
        provider = self._providers.of(bound)
        if not isinstance(provider, DocumentReader):
            raise self._providers.refusal(workspace_id, "a prompt block")
        found = await answered(provider.labels(LabelsRequest(workspace_id=workspace_id, scope=scope.value)))
        since = (today - timedelta(days=WINDOW_DAYS)).isoformat()
        owned, wanted = OwnedDocuments(since), []
        for label in found.ids:
            known = tier_of_label(label)
            if known is None:
                continue
            if known[0] == "daily" and (known[1] or "") < since:
                owned.last_day = max(owned.last_day or "", known[1] or "")
            else:
                wanted.append(known)
        requests = [
            ReadRequest(workspace_id=workspace_id, tier=tier, key=key, scope=scope.value) for tier, key in wanted
        ]
        texts = await asyncio.gather(*(answered(provider.read(request)) for request in requests))
        for known, text in zip(wanted, texts, strict=True):
            content = text.content or ("blocked" if text.finding else "")
            owned.rows[known] = DocumentText(content, text.finding, 0)
        return owned

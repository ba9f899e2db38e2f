"""The documents of a prompt block, from the document store of their workspace.

Invariant: a document that the store reports as blocked has its finding and no text; nothing of it is in a block.
"""

from __future__ import annotations

import asyncio
from datetime import date, timedelta

from ....schemas.rules.memory_block import WINDOW_DAYS
from ....schemas.rules.tiers import scope_of, tier_of_label
from ..documents.addressing import DocumentAddress
from ..documents.owned import DocumentText, OwnedDocuments, PromptDocuments
from .bound import owner_of_workspace
from .choosing import DocumentStores


class StoredPrompts:
    """Documents by owner.

    Args:
        journal: Those of workspaces whose documents are in the journal.
        stores: Which store serves which workspace.
    """

    def __init__(self, journal: PromptDocuments, stores: DocumentStores) -> None:
        self._journal = journal
        self._stores = stores

    def check_past(self, workspace_id: str) -> None:
        """Refuse a block as of a sequence where the documents are not in the journal.

        Raises:
            NotByProvider: If they are elsewhere.
        """
        self._stores.require_journal(workspace_id, "a block as of a sequence")

    async def of(self, workspace_id: str, owner: str, today: date) -> OwnedDocuments:
        """The documents of an owner; of daily logs those within the window of a block.

        Raises:
            NotByProvider: If the store cannot read whole documents.
            CrewJournalError: What the store refuses.
        """
        if self._stores.is_journal(workspace_id):
            return await self._journal.of(workspace_id, owner, today)
        store, caller = self._stores.of(workspace_id), owner_of_workspace(workspace_id)
        since = (today - timedelta(days=WINDOW_DAYS)).isoformat()
        owned, wanted = OwnedDocuments(since), []
        for label in await store.labels(caller, owner):
            known = tier_of_label(label)
            if known is None:
                continue
            if known[0] == "daily" and (known[1] or "") < since:
                owned.last_day = max(owned.last_day or "", known[1] or "")
            else:
                wanted.append(DocumentAddress(workspace_id, scope_of(owner)[0], owner, *known))
        texts = await asyncio.gather(*(store.read(caller, address) for address in wanted))
        for address, text in zip(wanted, texts, strict=True):
            bad = text.quarantined
            finding = None if bad is None else f"{bad.category}/{bad.pattern}"
            content = "blocked" if finding else text.content
            owned.rows[address.tier, address.key] = DocumentText(content, finding, 0)
        return owned

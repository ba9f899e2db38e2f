"""A cache of the current documents of owners whose memory is put into prompts.

A block needs all documents of three owners, and reading 200 KB from DuckDB takes longer than building the block.
Invariants: the cache equals the views; every commit updates it; after a swap of the views file, or deleted rows,
documents are read again. The size is limited; the least recently used owner is evicted first.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Final, NamedTuple

from ...schemas.context.memory_block import WINDOW_DAYS
from ...schemas.core.ports import CommittedBatch, ViewReader
from ...schemas.documents.rules import scope_of, tier_of_label
from ...schemas.documents.tables import DOCUMENTS, DocumentRow
from .adapters import owner_of_workspace
from .addressing import DocumentAddress
from .choosing import DocumentStores

KEPT_CHARS: Final = 64 << 20
"""Maximum characters of cached text; an owner has at most 10 MB (``schemas/documents/rules``), usually 20 KB."""
_SELECT: Final = f"""SELECT {DOCUMENTS.names} FROM {DOCUMENTS} WHERE workspace_id = ? AND owner = ?
    AND (tier <> 'daily' OR doc_key >= ?)"""
_LAST_DAY: Final = f"""SELECT max(doc_key) FROM {DOCUMENTS} WHERE workspace_id = ? AND owner = ?
    AND tier = 'daily' AND bytes > 0 AND doc_key < ?"""

DocumentKey = tuple[str, str | None]


class DocumentText(NamedTuple):
    """A document's text after a write, and the scanners' finding."""

    content: str
    finding: str | None
    seq: int


@dataclass(slots=True)
class OwnedDocuments:
    """The documents of an owner.

    Attributes:
        since: The first day whose log is among ``rows``; empty for all.
        rows: (tier, key) → document; daily logs only from ``since`` on.
        last_day: The newest day before ``since`` that has notes.
    """

    since: str = ""
    rows: dict[DocumentKey, DocumentText] = field(default_factory=dict)
    last_day: str | None = None

    def get(self, tier: str, key: str | None = None) -> DocumentText | None:
        """A document with a text; None if it was never written, is empty or retracted."""
        row = self.rows.get((tier, key))
        return row if row is not None and row.content else None

    def keys(self, tier: str) -> list[str]:
        """The keys of a tier's documents with a text, in order."""
        return sorted(key for name, key in self.rows if name == tier and key is not None and self.get(tier, key))

    def take(self, row: DocumentRow) -> None:
        """Take over a row of the views, unless a newer one is known."""
        if row.tier == "daily" and (row.doc_key or "") < self.since:
            if row.content and (row.doc_key or "") > (self.last_day or ""):
                self.last_day = row.doc_key
            return
        known = self.rows.get((row.tier, row.doc_key))
        if known is None or known.seq <= row.seq:
            self.rows[row.tier, row.doc_key] = DocumentText(row.content, row.finding, row.seq)


class PromptDocuments:
    """Documents by owner.

    Args:
        views: Read once for each owner, then followed until ``close``.
    """

    def __init__(self, views: ViewReader) -> None:
        self._views = views
        self._owners: OrderedDict[tuple[str, str], OwnedDocuments] = OrderedDict()
        self._loaded: set[tuple[str, str]] = set()
        self._loading = asyncio.Lock()
        self._generation = views.generation
        self._unsubscribe: Callable[[], None] = views.subscribe(self._follow)

    def close(self) -> None:
        """Stop following the views."""
        self._unsubscribe()

    async def of(self, workspace_id: str, owner: str, today: date) -> OwnedDocuments:
        """The documents of an owner, up to date with the views."""
        name = workspace_id, owner
        if self._views.generation != self._generation:
            self._generation = self._views.generation
            self._forget()
        if name not in self._loaded:
            async with self._loading:
                if name not in self._loaded:
                    await self._load(name, (today - timedelta(days=WINDOW_DAYS)).isoformat())
        self._owners.move_to_end(name)
        return self._owners[name]

    async def _load(self, name: tuple[str, str], since: str) -> None:
        owned = None
        while owned is None or self._owners.get(name) is not owned:  # evicted while it was read
            owned = self._owners[name] = OwnedDocuments(since)  # later commits are added to the rows that are read
            rows, last_day = await asyncio.to_thread(self._read, name, since)
        for row in rows:
            owned.take(row)
        owned.last_day = max(filter(None, (owned.last_day, last_day)), default=None)
        self._loaded.add(name)
        self._evict()

    def _read(self, name: tuple[str, str], since: str) -> tuple[list[DocumentRow], str | None]:
        rows = [DocumentRow(*row) for row in self._views.rows(_SELECT, [*name, since])]
        [(last_day,)] = self._views.rows(_LAST_DAY, [*name, since])
        return rows, last_day

    def _follow(self, batch: CommittedBatch) -> None:
        changes = batch.changes.get(DOCUMENTS.name)
        if changes is None:
            return
        if changes.removed or changes.rewritten:
            self._forget()
            return
        for row in changes.rows(DocumentRow):
            name = row.workspace_id, row.owner
            if (owned := self._owners.get(name)) is None:
                continue
            if row.tier == "daily" and not row.content:
                self._owners.pop(name)  # the newest day with notes may have changed
                self._loaded.discard(name)
            else:
                owned.take(row)

    def _forget(self) -> None:
        self._owners.clear()
        self._loaded.clear()

    def _evict(self) -> None:
        sizes = {name: sum(len(row.content) for row in owned.rows.values()) for name, owned in self._owners.items()}
        total = sum(sizes.values())
        for name in list(self._owners)[:-1]:
            if total <= KEPT_CHARS:
                return
            total -= sizes[name]
            del self._owners[name]
            self._loaded.discard(name)


# The documents of a prompt block, from the document store of their workspace.


class StoredPrompts:
    """Documents by owner.

    Args:
        journal: Documents of workspaces that keep them in the journal.
        stores: The store of each workspace.
    """

    def __init__(self, journal: PromptDocuments, stores: DocumentStores) -> None:
        self._journal = journal
        self._stores = stores

    async def of(self, workspace_id: str, owner: str, today: date) -> OwnedDocuments:
        """The documents of an owner; daily logs only within the window of a block.

        Raises:
            NotByProvider: If the store cannot read whole documents.
            CrewJournalError: If the store refuses the request.
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

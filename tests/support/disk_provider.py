"""The store on disk as a memory provider."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crew_journal.schemas.documents.provider import ProviderScope
from crew_journal.services.documents.adapters import StoreProvider
from crew_journal.services.documents.providers import DiskStore


class DiskProvider(StoreProvider):
    """Memory documents as files below a root, for one scope."""

    def __init__(self, root: Path | None, scope: ProviderScope, **more: Any) -> None:
        super().__init__(DiskStore(root), scope, **more)
        self.root = root

"""The settings of a workspace for writes: how secrets are treated, and whether a write is verified."""

from __future__ import annotations

from typing import Final

from ....schemas.events.memory_documents import MemoryConfigUpdated
from ....schemas.ports import ViewReader
from ....schemas.views import MEMORY_CONFIG
from ....schemas.views.documents import MemoryConfigRow
from ...kept import Kept, in_thread

_SELECT: Final = f"SELECT {MEMORY_CONFIG.names} FROM {MEMORY_CONFIG} WHERE workspace_id = ?"
_DEFAULT: Final = MemoryConfigUpdated()


def kept_configs(views: ViewReader) -> Kept[str, MemoryConfigRow]:
    """The settings of each workspace; the defaults if it has none."""

    def read(workspace_id: str) -> MemoryConfigRow:
        rows = views.rows(_SELECT, [workspace_id])
        return MemoryConfigRow(*(rows[0] if rows else (workspace_id, None, _DEFAULT.scrubber, _DEFAULT.verifier, 0)))

    return Kept(views, (MEMORY_CONFIG,), in_thread(read))

"""The floor of confidence that a workspace has set for ``inject``; most have none."""

from __future__ import annotations

import json
from typing import Final

from ....schemas.events.workspaces import EVIDENCE_FLOOR
from ....schemas.ports import ViewReader
from ....schemas.views import WORKSPACE_SETTINGS
from ...kept import Kept, in_thread

_SETTINGS: Final = f"SELECT settings FROM {WORKSPACE_SETTINGS} WHERE workspace_id = ?"


def kept_floors(views: ViewReader) -> Kept[str, float | None]:
    """The floor of each workspace, None if it has set none."""

    def read(workspace_id: str) -> float | None:
        rows = views.rows(_SETTINGS, [workspace_id])
        floor = json.loads(rows[0][0]).get(EVIDENCE_FLOOR) if rows else None
        return None if floor is None else float(floor)

    return Kept(views, (WORKSPACE_SETTINGS,), in_thread(read))

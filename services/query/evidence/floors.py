"""The floor of confidence that a workspace has set for ``inject``; most have none."""

from __future__ import annotations

from ....schemas.ports import ViewReader
from ....schemas.views import WORKSPACE_SETTINGS
from ....schemas.views.workspaces import read_workspace_settings
from ...kept import KeptValues, in_thread


def kept_floors(views: ViewReader) -> KeptValues[str, float | None]:
    """The floor of each workspace, None if it has set none."""

    def read(workspace_id: str) -> float | None:
        return read_workspace_settings(views, workspace_id).evidence_floor

    return KeptValues(views, (WORKSPACE_SETTINGS,), in_thread(read))

"""The settings that a workspace has, as the views show them."""

from __future__ import annotations

import json
from typing import Final

from ..ports import ViewReader
from ..recorded_settings import WorkspaceSettings
from .workspaces import WORKSPACE_SETTINGS

_SELECT: Final = f"SELECT cost_nudge_usd, settings FROM {WORKSPACE_SETTINGS} WHERE workspace_id = ?"


def read_workspace_settings(views: ViewReader, workspace_id: str) -> WorkspaceSettings:
    """The settings of a workspace, all absent if it was not configured; blocking."""
    for cost, settings in views.rows(_SELECT, [workspace_id]):
        return WorkspaceSettings.of({**json.loads(settings), "cost_nudge_usd": cost})
    return WorkspaceSettings()

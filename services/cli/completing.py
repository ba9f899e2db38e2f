"""Completion of values in a shell: recipes, views, roles, and the workspaces of the running service.

Invariant: a completion is silent and never starts a journal; what cannot be found completes to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

Complete = Callable[[str], list[str]]
_TIMEOUT_S: Final = 1.0
"""Seconds for the running service; a person waits."""


def among(values: Callable[[], Iterable[str]]) -> Complete:
    """Completes to the ``values`` that begin with the typed text."""

    def complete(incomplete: str) -> list[str]:
        try:
            return sorted(value for value in values() if value.startswith(incomplete))
        except Exception:  # a message would be read as a completion
            return []

    return complete


def _recipes() -> Iterable[str]:
    from ..recall.recipes import RECIPES

    return RECIPES


def _views() -> Iterable[str]:
    from ...consumers.discovery import discover_projections

    return [projection.name for projection in discover_projections()]


def _roles() -> Iterable[str]:
    from ...schemas.core.principal import Role

    return [role.value for role in Role]


def _workspaces() -> Iterable[str]:
    import httpx

    from ..client.find import find

    address = find(None, None, None)
    with httpx.Client(**address.arguments(), timeout=_TIMEOUT_S) as client:
        return [workspace["workspace_id"] for workspace in client.get("/v1/workspaces").json()["workspaces"]]


complete_recipe: Final = among(_recipes)
complete_view: Final = among(_views)
complete_role: Final = among(_roles)
complete_workspace: Final = among(_workspaces)
OF_FIELDS: Final[dict[str, Complete]] = {
    "recipe": complete_recipe,
    "projection": complete_view,
    "workspace_id": complete_workspace,
}
"""By the name of a request's field."""

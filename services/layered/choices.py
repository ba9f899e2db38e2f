"""The settings of layered memory in a workspace: the node's, overridden by the workspace's.

Invariant: a workspace's settings must fit the node's; none is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ...schemas.errors import InvalidQuery
from ...schemas.ports import ViewReader
from ...schemas.recorded_settings import WorkspaceSettings
from ...schemas.rules.context.budget import Budget
from ...schemas.rules.salience import Weights
from ...schemas.settings import LayeredSettings
from ...schemas.views import WORKSPACE_SETTINGS
from ...schemas.views.workspaces import read_workspace_settings
from ..kept import KeptValues, in_thread

UNBOUNDED_TOKENS: Final = 1_000_000
"""The budget of a node whose context budget is switched off."""


@dataclass(frozen=True, slots=True)
class LayeredChoices:
    """The settings that apply.

    Attributes:
        weights: Of salience.
        budget: Of a context.
        episodic_ttl_hours: For how long episodes are returned; None for ever.
        decays: Whether freshness counts.
    """

    weights: Weights
    budget: Budget
    episodic_ttl_hours: float | None
    decays: bool

    @classmethod
    def of(cls, settings: LayeredSettings) -> LayeredChoices:
        """The settings of a node."""
        budget = settings.budget()
        if not settings.context_budget_enabled:
            budget = Budget(UNBOUNDED_TOKENS, budget.system)
        decays = settings.temporal_reasoning_enabled
        return cls(settings.weights(), budget, settings.episodic_ttl_hours, decays)

    def overridden(self, settings: WorkspaceSettings) -> LayeredChoices:
        """The settings of a workspace that overrides these.

        Raises:
            InvalidQuery: If they do not fit those of the node.
        """
        total = self.budget.total if settings.context_budget_tokens is None else settings.context_budget_tokens
        system = self.budget.system if settings.context_system_tokens is None else settings.context_system_tokens
        try:
            weights, budget = replace(self.weights, **settings.salience_weights or {}), Budget(total, system)
        except ValueError as error:
            hint = "change them with `crew-journal workspace settings`"
            raise InvalidQuery(f"the settings of the workspace do not fit: {error}", hint=hint) from None
        ttl = settings.episodic_ttl_hours or self.episodic_ttl_hours
        return replace(self, weights=weights, budget=budget, episodic_ttl_hours=ttl)


def kept_choices(node: LayeredChoices, views: ViewReader) -> KeptValues[str, LayeredChoices]:
    """The settings of each workspace."""

    def read(workspace_id: str) -> LayeredChoices:
        return node.overridden(read_workspace_settings(views, workspace_id))

    return KeptValues(views, (WORKSPACE_SETTINGS,), in_thread(read))

"""The settings of layered memory in a workspace: the node's, overridden by the workspace's.

Invariant: a workspace's settings must fit the node's; none is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ...schemas.errors import InvalidQuery
from ...schemas.events.workspaces import (
    CONTEXT_BUDGET_TOKENS,
    CONTEXT_SYSTEM_TOKENS,
    EPISODIC_TTL_HOURS,
    SALIENCE_WEIGHTS,
)
from ...schemas.layered_settings import LayeredSettings
from ...schemas.ports import ViewReader
from ...schemas.rules.context.budget import Budget
from ...schemas.rules.salience import Weights
from ...schemas.views import WORKSPACE_SETTINGS
from ..kept import Kept, in_thread

UNBOUNDED_TOKENS: Final = 1_000_000
"""The budget of a node whose context budget is switched off."""
_SETTINGS: Final = f"SELECT settings FROM {WORKSPACE_SETTINGS} WHERE workspace_id = ?"


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

    def overridden(self, settings: Mapping[str, Any]) -> LayeredChoices:
        """The settings of a workspace that overrides these.

        Raises:
            InvalidQuery: If they do not fit those of the node.
        """
        system = settings.get(CONTEXT_SYSTEM_TOKENS, self.budget.system)
        try:
            weights = replace(self.weights, **settings.get(SALIENCE_WEIGHTS, {}))
            budget = Budget(settings.get(CONTEXT_BUDGET_TOKENS, self.budget.total), system)
        except ValueError as error:
            hint = "change them with `crew-journal workspace settings`"
            raise InvalidQuery(f"the settings of the workspace do not fit: {error}", hint=hint) from None
        ttl = settings.get(EPISODIC_TTL_HOURS, self.episodic_ttl_hours)
        return replace(self, weights=weights, budget=budget, episodic_ttl_hours=ttl)


def kept_choices(node: LayeredChoices, views: ViewReader) -> Kept[str, LayeredChoices]:
    """The settings of each workspace."""

    def read(workspace_id: str) -> LayeredChoices:
        rows = views.rows(_SETTINGS, [workspace_id])
        return node.overridden(json.loads(rows[0][0])) if rows else node

    return Kept(views, (WORKSPACE_SETTINGS,), in_thread(read))

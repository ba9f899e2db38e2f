"""Settings of the layered memory; each is also read under the name that Cruvero gives it (``CRUVERO_…``).

Invariant: weights and budgets are checked when the settings are read, so a node with wrong ones does not start.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from .rules.context.budget import SYSTEM_DEFAULT, TOTAL_DEFAULT, Budget
from .rules.salience import RECENCY_HALF_LIFE_HOURS, Weights

EPISODIC_TTL_HOURS: Final = 720.0
"""Hours for which episodes are returned if the store has a time to live."""
_UNITS_H: Final = {"m": 1 / 60, "h": 1.0, "d": 24.0}


def _hours(given: object) -> object:
    """``168h``, ``7d`` and ``90m`` as hours; a number is hours already."""
    if isinstance(given, str) and given.strip()[-1:] in _UNITS_H:
        return float(given.strip()[:-1]) * _UNITS_H[given.strip()[-1]]
    return given


Hours = Annotated[float, BeforeValidator(_hours)]
Weight = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
_WEIGHTS: Final = Weights()


class LayeredSettings(BaseModel, use_attribute_docstrings=True):
    """Salience, context budget, decay and episodes."""

    salience_enabled: bool = True
    """Rank memories by salience. If false, by relevance alone."""
    memory_salience_relevance: Weight = _WEIGHTS.relevance
    """Weight of the relevance to the query."""
    memory_salience_recency: Weight = _WEIGHTS.recency
    """Weight of the time since the last change or use."""
    memory_salience_confidence: Weight = _WEIGHTS.confidence
    """Weight of the confidence of a fact."""
    memory_salience_usage: Weight = _WEIGHTS.usage
    """Weight of the number of uses."""
    memory_salience_freshness: Weight = _WEIGHTS.freshness
    """Weight of the freshness of a fact."""
    memory_salience_halflife: Hours = RECENCY_HALF_LIFE_HOURS
    """Half-life of recency in hours; `90m`, `168h` and `7d` are read, too."""
    temporal_reasoning_enabled: bool = True
    """Let facts go stale. If false, freshness does not count."""
    context_budget_enabled: bool = True
    """Limit contexts to the budget below. If false, only the budget of a request limits them."""
    context_budget_tokens: int = TOTAL_DEFAULT
    """Tokens of a whole context."""
    context_system_tokens: int = SYSTEM_DEFAULT
    """Tokens of that budget that are reserved for system and safety instructions."""
    context_tokenizer: str | None = None
    """`module:function` that returns the number of tokens of a text. If absent, tokens are estimated."""
    memory_episodic_store: Literal["journal", "postgres", "redis", "dragonfly"] = "journal"
    """`journal` or `postgres`: all episodes are returned. `redis` or `dragonfly`: those within the time to live."""
    memory_episodic_ttl: Hours = Field(default=EPISODIC_TTL_HOURS, gt=0.0, allow_inf_nan=False)
    """That time to live in hours; `90m`, `168h` and `7d` are read, too."""

    @model_validator(mode="after")
    def _check_layered(self) -> Self:
        self.weights()
        self.budget()
        return self

    def weights(self) -> Weights:
        """The weights of salience; relevance alone if it is switched off."""
        if not self.salience_enabled:
            return Weights(1.0, 0.0, 0.0, 0.0, 0.0, self.memory_salience_halflife)
        return Weights(
            self.memory_salience_relevance,
            self.memory_salience_recency,
            self.memory_salience_confidence,
            self.memory_salience_usage,
            self.memory_salience_freshness if self.temporal_reasoning_enabled else 0.0,
            self.memory_salience_halflife,
        )

    def budget(self) -> Budget:
        """The budget of a context."""
        return Budget(self.context_budget_tokens, self.context_system_tokens)

    @property
    def episodic_ttl_hours(self) -> float | None:
        """Hours for which episodes are returned; None for ever."""
        return self.memory_episodic_ttl if self.memory_episodic_store in ("redis", "dragonfly") else None

"""Settings of the layered memory; each is also read under the name that Cruvero gives it (``CRUVERO_…``).

Invariant: weights and budgets are checked when the settings are read, so a node with wrong ones does not start.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import BaseSettings

from .rules.context.budget import SYSTEM_DEFAULT, TOTAL_DEFAULT, Budget
from .rules.salience import RECENCY_HALF_LIFE_HOURS, Weights

EPISODIC_TTL_HOURS: Final = 720.0
"""Hours for which episodes are returned if the store has a time to live."""
_UNITS_H: Final = {"m": 1 / 60, "h": 1.0, "d": 24.0}


def _cruvero(name: str, default: object) -> Callable[[], Any]:
    return lambda: os.environ.get(f"CRUVERO_{name}") or default


def _hours(value: object) -> object:
    """``168h``, ``7d`` and ``90m`` as hours; a number is hours already."""
    if isinstance(value, str) and value.strip()[-1:] in _UNITS_H:
        return float(value.strip()[:-1]) * _UNITS_H[value.strip()[-1]]
    return value


Hours = Annotated[float, BeforeValidator(_hours)]
Weight = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
_WEIGHTS: Final = Weights()


class LayeredSettings(BaseSettings):
    """Salience, context budget, decay and episodes."""

    salience_enabled: bool = Field(
        default_factory=_cruvero("SALIENCE_ENABLED", True),
        description="Rank memories by salience; if false, by relevance alone.",
    )
    memory_salience_relevance: Weight = Field(
        default_factory=_cruvero("MEMORY_SALIENCE_RELEVANCE", _WEIGHTS.relevance),
        description="Weight of the relevance to the query.",
    )
    memory_salience_recency: Weight = Field(
        default_factory=_cruvero("MEMORY_SALIENCE_RECENCY", _WEIGHTS.recency),
        description="Weight of the time since the last change or use.",
    )
    memory_salience_confidence: Weight = Field(
        default_factory=_cruvero("MEMORY_SALIENCE_CONFIDENCE", _WEIGHTS.confidence),
        description="Weight of the confidence of a fact.",
    )
    memory_salience_usage: Weight = Field(
        default_factory=_cruvero("MEMORY_SALIENCE_USAGE", _WEIGHTS.usage),
        description="Weight of the number of uses.",
    )
    memory_salience_freshness: Weight = Field(
        default_factory=_cruvero("MEMORY_SALIENCE_FRESHNESS", _WEIGHTS.freshness),
        description="Weight of the freshness of a fact.",
    )
    memory_salience_halflife: Hours = Field(
        default_factory=_cruvero("MEMORY_SALIENCE_HALFLIFE", RECENCY_HALF_LIFE_HOURS),
        description="Half-life of recency, in hours; 90m, 168h and 7d are read, too.",
    )
    temporal_reasoning_enabled: bool = Field(
        default_factory=_cruvero("TEMPORAL_REASONING_ENABLED", True),
        description="Let facts go stale; if false, freshness does not count.",
    )
    context_budget_enabled: bool = Field(
        default_factory=_cruvero("CONTEXT_BUDGET_ENABLED", True),
        description="Limit contexts to a budget; if false, only a budget in the request limits them.",
    )
    context_budget_tokens: int = Field(
        default_factory=_cruvero("CONTEXT_BUDGET_TOKENS", TOTAL_DEFAULT), description="Tokens of a whole context."
    )
    context_system_tokens: int = Field(
        default_factory=_cruvero("CONTEXT_SYSTEM_TOKENS", SYSTEM_DEFAULT),
        description="Tokens that are reserved for system and safety instructions.",
    )
    context_tokenizer: str | None = Field(
        default=None,
        description="module:function that counts the tokens of a text; an estimate if absent.",
    )
    memory_episodic_store: Literal["journal", "postgres", "redis", "dragonfly"] = Field(
        default_factory=_cruvero("MEMORY_EPISODIC_STORE", "journal"),
        description="journal or postgres: all episodes are returned; redis or dragonfly: those within the time to live.",
    )
    memory_episodic_ttl: Hours = Field(
        default_factory=_cruvero("MEMORY_EPISODIC_TTL", EPISODIC_TTL_HOURS),
        gt=0.0,
        allow_inf_nan=False,
        description="Time to live of episodes, in hours; 90m, 168h and 7d are read, too.",
    )

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

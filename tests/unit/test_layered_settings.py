"""Settings of layered memory, under both names, and the tokenizer."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from pydantic import ValidationError

from crew_journal.schemas.core.errors import InvalidQuery
from crew_journal.schemas.core.recorded_settings import WorkspaceSettings
from crew_journal.schemas.settings import Settings
from crew_journal.services.context.state import LayeredChoices
from crew_journal.services.context.use_cases import tokenizer_of


def test_the_names_of_cruvero_are_read_and_our_own_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUVERO_MEMORY_SALIENCE_HALFLIFE", "7d")
    monkeypatch.setenv("CRUVERO_CONTEXT_BUDGET_TOKENS", "4000")
    monkeypatch.setenv("CRUVERO_MEMORY_EPISODIC_STORE", "redis")
    monkeypatch.setenv("CRUVERO_MEMORY_SALIENCE_USAGE", "0.3")
    monkeypatch.setenv("CREW_JOURNAL_MEMORY_SALIENCE_USAGE", "0.2")
    settings = Settings()
    assert (settings.weights().half_life_hours, settings.weights().usage) == (168.0, 0.2)
    assert (settings.budget().total, settings.episodic_ttl_hours) == (4_000, 720.0)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("CONTEXT_SYSTEM_TOKENS", "8000", "reserved for the system"),
        ("MEMORY_SALIENCE_RELEVANCE", "-1", "greater than or equal to 0"),
        ("MEMORY_SALIENCE_HALFLIFE", "0h", "half-life"),
    ],
)
def test_a_node_with_wrong_weights_or_budgets_does_not_start(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(f"CRUVERO_{name}", value)
    with pytest.raises(ValidationError, match=said):
        Settings()


def test_weights_that_sum_to_zero_are_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for part in ("RELEVANCE", "RECENCY", "CONFIDENCE", "USAGE", "FRESHNESS"):
        monkeypatch.setenv(f"CRUVERO_MEMORY_SALIENCE_{part}", "0")
    with pytest.raises(ValidationError, match="sum to 0"):
        Settings()


def test_switches_leave_relevance_alone_and_freshness_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUVERO_SALIENCE_ENABLED", "false")
    assert set(Settings().weights().by_part().values()) == {0.0, 1.0}
    monkeypatch.setenv("CRUVERO_SALIENCE_ENABLED", "true")
    monkeypatch.setenv("CRUVERO_TEMPORAL_REASONING_ENABLED", "false")
    assert Settings().weights().freshness == 0.0


def test_a_workspace_overrides_single_weights_and_what_does_not_fit_the_node_is_refused() -> None:
    node = LayeredChoices.of(Settings())
    found = node.overridden(WorkspaceSettings(salience_weights={"recency": 0.5}, context_budget_tokens=600))
    assert (found.weights.recency, found.weights.relevance, found.budget.total) == (0.5, 0.4, 600)
    with pytest.raises(InvalidQuery, match="do not fit"):
        node.overridden(WorkspaceSettings(context_budget_tokens=400))


def test_a_tokenizer_is_loaded_by_its_name_and_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("my_tokens")
    module.count = lambda text: len(text.split())  # type: ignore[attr-defined]
    module.broken = lambda text: "many"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_tokens", module)
    loaded = tokenizer_of("my_tokens:count")
    assert (loaded.name, loaded.count("two words")) == ("my_tokens:count", 2)
    assert tokenizer_of(None).name == "estimate"
    for named in ("my_tokens:broken", "my_tokens:missing", "no_such_module:count"):
        with pytest.raises(InvalidQuery, match="cannot be used"):
            tokenizer_of(named)

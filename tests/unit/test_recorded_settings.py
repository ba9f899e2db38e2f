"""Settings of workspaces, memory documents, agents and crews: declared once, and read tolerantly."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from crew_journal.schemas.access.events import AgentRegistered, CrewRegistered, WorkspaceConfigured
from crew_journal.schemas.access.operations import (
    AgentAnswer,
    ConfigureWorkspaceRequest,
    CrewAnswer,
    RegisterAgentRequest,
    RegisterCrewRequest,
    UpdateAgentRequest,
    UpdateCrewRequest,
    WorkspaceSettingsAnswer,
)
from crew_journal.schemas.core.recorded_settings import AgentSettings, CrewSettings, MemorySettings, WorkspaceSettings
from crew_journal.schemas.documents.events import MemoryConfigUpdated
from crew_journal.schemas.documents.operations import ConfigureMemoryRequest, MemoryConfigAnswer
from crew_journal.schemas.settings import Settings

USES: list[tuple[type[BaseModel], tuple[type[BaseModel], ...]]] = [
    (WorkspaceSettings, (ConfigureWorkspaceRequest, WorkspaceSettingsAnswer)),
    (MemorySettings, (MemoryConfigUpdated, ConfigureMemoryRequest, MemoryConfigAnswer)),
    (AgentSettings, (AgentRegistered, RegisterAgentRequest, UpdateAgentRequest, AgentAnswer)),
    (CrewSettings, (CrewRegistered, RegisterCrewRequest, UpdateCrewRequest, CrewAnswer)),
]


@pytest.mark.parametrize(("settings", "users"), USES)
def test_a_declared_setting_is_a_field_of_its_events_requests_and_answers(
    settings: type[BaseModel], users: tuple[type[BaseModel], ...]
) -> None:
    for user in users:
        for name, field in settings.model_fields.items():
            assert user.model_fields[name].description or name == "cost_nudge_usd"
            assert field.description


def test_a_request_of_changes_holds_only_what_was_given_and_keeps_the_bounds() -> None:
    given: dict[str, Any] = {"agent_id": "ada", "memory_walk_depth": 1}
    assert UpdateAgentRequest(**given).model_dump(exclude_none=True) == given
    assert ConfigureMemoryRequest.model_validate({"retention_days": 3}).model_dump(exclude_defaults=True) == {
        "retention_days": 3
    }
    for wrong in ({"memory_walk_depth": 2}, {"memory_enabled": "yes"}, {"agent_id": "_"}, {"unknown": 1}):
        with pytest.raises(ValidationError):
            UpdateAgentRequest(**{**given, **wrong})


def test_a_recorded_setting_that_is_not_valid_or_not_known_counts_as_absent() -> None:
    recorded = {"embed_chat": "no", "evidence_floor": 0.2, "remembered_tokens": -1, "of_a_later_version": True}
    chosen = WorkspaceConfigured(cost_nudge_usd=2.5, settings=recorded).chosen
    assert chosen.model_dump(exclude_none=True) == {"cost_nudge_usd": 2.5, "evidence_floor": 0.2}


def test_a_further_variable_counts_if_it_is_not_empty_and_the_own_one_is_absent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "")
    assert Settings().ollama_host == "http://127.0.0.1:11434"
    monkeypatch.setenv("OLLAMA_HOST", "http://127.0.0.1:1")
    assert Settings().ollama_host == "http://127.0.0.1:1"
    monkeypatch.setenv("crew_journal_ollama_host", "http://127.0.0.1:2")
    assert Settings().ollama_host == "http://127.0.0.1:2"
    assert Settings(ollama_host="http://127.0.0.1:3").ollama_host == "http://127.0.0.1:3"

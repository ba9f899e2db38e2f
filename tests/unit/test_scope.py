"""Who may recall what: the scope follows from the token, and a request can only narrow it."""

import pytest
from pydantic import ValidationError

from crew_journal.schemas.core.errors import InvalidQuery, NotAllowed
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.recall.operations import RECALL, RecallRequest
from crew_journal.services.desk import parse
from crew_journal.services.index.scope import RecallScope, ScopeKind, resolve_scope

OWN, CREW, WHOLE = ScopeKind.OWN, ScopeKind.CREW_SHARED, ScopeKind.WORKSPACE


def token(role, agent="a1", crew="c1"):
    return Principal(token_id="t", role=role, workspace_id="w1", agent_id=agent, crew_id=crew)


@pytest.mark.parametrize(
    ("role", "agent_id", "crew_id", "expected"),
    [
        (Role.AGENT, None, None, RecallScope(OWN, "a1", "c1")),
        (Role.LEAD, None, None, RecallScope(CREW, "a1", "c1")),
        (Role.ADMIN, None, None, RecallScope(WHOLE)),
        (Role.OWNER, None, None, RecallScope(WHOLE)),
        (Role.OWNER, "a7", None, RecallScope(OWN, "a7")),
        (Role.OWNER, "a7", "c7", RecallScope(CREW, "a7", "c7")),
        (Role.AGENT, "a1", "c1", RecallScope(OWN, "a1", "c1")),
    ],
)
def test_a_scope_left_out_follows_from_the_role(role, agent_id, crew_id, expected):
    bound = token(role) if not role.administers else token(role, None, None)
    assert resolve_scope(bound, None, agent_id, crew_id) == expected


@pytest.mark.parametrize(("role", "kind"), [(Role.AGENT, CREW), (Role.AGENT, WHOLE), (Role.LEAD, WHOLE)])
def test_a_scope_above_the_role_is_refused(role, kind):
    with pytest.raises(NotAllowed, match=kind.value):
        resolve_scope(token(role), kind)


@pytest.mark.parametrize("role", [Role.AGENT, Role.LEAD])
def test_another_agent_or_crew_than_the_tokens_is_refused(role):
    with pytest.raises(NotAllowed, match="agent_id"):
        resolve_scope(token(role), None, "a2")
    with pytest.raises(NotAllowed, match="crew_id"):
        resolve_scope(token(role), None, None, "c2")


def test_a_lead_may_look_at_its_own_entries_alone():
    assert resolve_scope(token(Role.LEAD), OWN) == RecallScope(OWN, "a1", "c1")


def test_a_scope_without_the_id_it_needs_says_which():
    with pytest.raises(InvalidQuery, match="agent_id"):
        resolve_scope(token(Role.OWNER, None, None), OWN)
    with pytest.raises(InvalidQuery, match="crew_id"):
        resolve_scope(token(Role.ADMIN, None, None), CREW)


@pytest.mark.parametrize(("agent_id", "crew_id", "field"), [("a1", None, "agent_id"), (None, "c1", "crew_id")])
def test_the_whole_workspace_takes_no_agent_and_no_crew(agent_id, crew_id, field):
    with pytest.raises(InvalidQuery, match=f"scope workspace takes no {field}") as refused:
        resolve_scope(token(Role.OWNER, None, None), WHOLE, agent_id, crew_id)
    assert refused.value.field == field


@pytest.mark.parametrize("k", [0, 51, -3])
def test_k_outside_its_range_is_an_error(k):
    with pytest.raises(ValidationError, match="k"):
        RecallRequest(query="q", k=k)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"query": "q", "k": "ten"}, "k"),
        ({"query": "q", "k": 2.5}, "k"),
        ({"query": "q", "k": True}, "k"),
        ({"query": "  "}, "query"),
        ({}, "query"),
        ({"query": "q" * 4_001}, "query"),
        ({"query": "q", "scope": "all"}, "scope"),
        ({"query": "q", "agent_id": "no spaces"}, "agent_id"),
        ({"query": "q", "min_seq": -1}, "min_seq"),
        ({"query": "q", "nonsense": 1}, "nonsense"),
    ],
)
def test_a_wrong_field_is_named_and_its_value_is_not_repeated(body, field):
    with pytest.raises(InvalidQuery) as refused:
        parse(RECALL, body)
    assert refused.value.field == field
    assert "no spaces" not in str(refused.value)


def test_empty_ids_are_absent():
    asked = parse(RECALL, {"query": "q", "agent_id": "", "crew_id": "", "scope": "", "recipe": ""})
    assert (asked.agent_id, asked.crew_id, asked.scope, asked.recipe) == (None, None, None, None)


def test_null_in_an_optional_field_of_a_request_counts_as_absent_and_in_a_required_one_it_does_not():
    asked = parse(RECALL, {"query": "q", "k": None, "explain": None, "walk_depth": None, "min_seq": None})
    assert asked == RecallRequest(query="q")
    with pytest.raises(InvalidQuery, match="query"):
        parse(RECALL, {"query": None})
    with pytest.raises(InvalidQuery, match="unknown"):
        parse(RECALL, {"query": "q", "unknown": None})
    assert RecallRequest.model_json_schema()["properties"]["k"]["type"] == ["integer", "null"]

"""Who may publish what, and as whom: types from the catalogue, actors from the token, both checked at intake."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import pytest
from support.journal import ADMIN, AGENT, LEAD, NOW, OWNER, note

from crew_journal.schemas.catalogue import catalogue, control_payloads, info_of, is_control_type, why_not_granted
from crew_journal.schemas.core.envelope import EntryRecorded
from crew_journal.schemas.core.errors import InvalidEntry, InvalidQuery, NotAllowed
from crew_journal.schemas.core.payload import SERVICE_ALONE, PublisherKind
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.decode import decode
from crew_journal.schemas.documents.rules import UPDATED
from crew_journal.services.journal.intake.submission import accept

KEEPER = Principal(
    token_id="t_keeper",
    role=Role.AGENT,
    workspace_id="acme",
    agent_id="gate",
    may_publish=("keeper.*", "approval.denied"),
    speaks_for=("keeper", "orchestrator:conductor"),
)
RESERVED = [
    "document", "drawer", "kg", "fact", "procedure", "lesson", "proposal", "rule", "operator", "chain", "recall",
    "retraction", "quarantine", "archive", "partition", "skill", "working",
]  # fmt: skip


def refused(principal: Principal, **fields: Any) -> NotAllowed:
    with pytest.raises(NotAllowed) as caught:
        accept(principal, note(**fields), NOW)
    assert caught.value.hint
    return caught.value


def actor(principal: Principal, **fields: Any) -> tuple[str, str | None]:
    entry = accept(principal, note(**fields), NOW).entry
    return entry.actor_type.value, entry.actor_id


# types


@pytest.mark.parametrize(
    "entry_type",
    [
        "approval.granted", "approval.denied", "approval.trust_granted", "approval.of_the_future", "keeper.decision",
        "keeper.rule_auto_tuned", "guardrail.input_blocked", "credential.revealed", "budget.exceeded", "audit.entity_made",
        "automation.throttled", "sidecar.stale", "system.migration", "memory.skill_approved",
    ],
)  # fmt: skip
def test_what_a_keeper_or_a_system_decides_is_no_agents_to_publish(entry_type: str) -> None:
    for principal in (AGENT, LEAD):
        error = refused(principal, entry_type=entry_type)
        assert error.field == "entry_type"
        assert "--may-publish" in error.hint
    for principal in (ADMIN, OWNER):
        assert accept(principal, note(entry_type=entry_type), NOW).subject.startswith("journal."), "decides no fold"


@pytest.mark.parametrize(
    "entry_type", ["approval.requested", "keeper.request", "memory.skill_proposed", "eval.metric", "run.started", "x.y"]
)
def test_what_an_agent_does_and_what_it_asks_for_is_its_own_to_publish(entry_type: str) -> None:
    assert accept(AGENT, note(entry_type=entry_type), NOW).subject == f"journal.acme.red.scout.{entry_type}"


@pytest.mark.parametrize("entry_type", [*(f"{prefix}.of_old" for prefix in RESERVED), "system.compaction"])
def test_a_reserved_type_is_refused_to_everybody_and_still_folds_where_it_was_published_before(entry_type: str) -> None:
    for principal in (AGENT, KEEPER, ADMIN, OWNER):
        with pytest.raises(NotAllowed, match="reserved for the service only") as caught:
            accept(principal, note(entry_type=entry_type), NOW)
        assert "not reserved" in caught.value.hint
    event = decode(7, f"journal.acme.red.scout.{entry_type}", {}, b'{"summary": "of before"}', 0)
    assert isinstance(event, EntryRecorded)
    assert not event.control


def test_a_prefix_is_reserved_below_its_dot_only() -> None:
    for free in ("document", "drawers.opened", "recalled.x", "kgs.y", "rules.z"):
        assert info_of(free).publisher is PublisherKind.AGENTS


def test_the_fold_believes_the_same_types_on_control_only_as_before() -> None:
    deciding = {name for name in catalogue() if is_control_type(name.replace("*", "x"))}
    assert "memory.compacted" in deciding
    assert all(catalogue()[name].publisher in (PublisherKind.SERVICE, PublisherKind.OPERATORS) for name in deciding)


def test_a_keepers_token_publishes_what_it_was_granted_and_nothing_more() -> None:
    decided = accept(KEEPER, note(entry_type="keeper.decision", actor_type="keeper", actor_id="gate-1"), NOW)
    assert decided.subject == "journal.acme._.gate.keeper.decision"
    assert accept(KEEPER, note(entry_type="approval.denied"), NOW)
    for entry_type in ("approval.granted", "credential.revealed", "memory.consolidated", "token.created", "skill.made"):
        assert refused(KEEPER, entry_type=entry_type).field == "entry_type"
    assert refused(KEEPER, entry_type="keeper.decision", priority="high").field == "priority"


@pytest.mark.parametrize(
    "pattern", ["token.*", "memory.priority_changed", "skill.*", "drawer.filed", "memory.consolidated"]
)
def test_what_only_the_service_or_operators_publish_cannot_be_granted(pattern: str) -> None:
    assert why_not_granted(pattern) is not None


@pytest.mark.parametrize(
    "pattern", ["keeper.*", "memory.*", "agent.*", "pipeline.step.*", "credential.revealed", "own.type"]
)
def test_a_pattern_that_covers_something_to_publish_can_be_granted(pattern: str) -> None:
    assert why_not_granted(pattern) is None


# actors


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"actor_type": "user", "actor_id": "boss"}, "actor_type"),
        ({"actor_type": "keeper"}, "actor_type"),
        ({"actor_type": "system"}, "actor_type"),
        ({"actor_type": "agent", "actor_id": "other"}, "actor_id"),
        ({"actor_id": "boss"}, "actor_id"),
        ({"actor_type": "user", "entry_type": "chat.agent_response"}, "actor_type"),
        ({"actor_type": "keeper", "entry_type": "chat.user_message"}, "actor_type"),
    ],
)
def test_an_agents_token_speaks_only_for_itself(fields: dict[str, Any], field: str) -> None:
    assert refused(AGENT, **fields).field == field
    with pytest.raises(NotAllowed) as caught:
        accept(AGENT, note(**fields), NOW, "entries[3].")
    assert caught.value.field == f"entries[3].{field}"


def test_an_agents_token_speaks_for_itself_and_for_the_user_in_his_message() -> None:
    assert actor(AGENT) == ("agent", "scout")
    assert actor(AGENT, actor_id="scout") == ("agent", "scout")
    assert actor(AGENT, actor_type="agent") == ("agent", None)
    assert actor(AGENT, entry_type="chat.user_message") == ("agent", "scout")
    assert actor(AGENT, entry_type="chat.user_message", actor_type="user", actor_id="Maria") == ("user", "Maria")


def test_a_persons_token_names_any_actor_and_is_the_user_if_it_names_none() -> None:
    for principal in (ADMIN, OWNER):
        assert actor(principal) == ("user", None)
        assert actor(principal, actor_id="ann") == ("user", "ann")
        assert actor(principal, actor_type="keeper", actor_id="gate") == ("keeper", "gate")


def test_a_token_that_speaks_for_others_names_them_and_is_the_first_of_them_if_it_names_none() -> None:
    assert actor(KEEPER) == ("keeper", None)
    assert actor(KEEPER, actor_type="keeper", actor_id="night gate") == ("keeper", "night gate")
    assert actor(KEEPER, actor_type="orchestrator", actor_id="conductor") == ("orchestrator", "conductor")
    assert actor(KEEPER, actor_type="agent", actor_id="gate") == ("agent", "gate")
    assert refused(KEEPER, actor_type="orchestrator", actor_id="another").field == "actor_id"
    assert refused(KEEPER, actor_type="orchestrator").field == "actor_id"
    assert refused(KEEPER, actor_type="user").field == "actor_type"
    named = KEEPER.model_copy(update={"speaks_for": ("sidecar:s-1",)})
    assert actor(named) == ("sidecar", "s-1")


def test_the_filled_in_actor_is_no_part_of_the_content_on_either_way() -> None:
    plain, stripped = note(id="e"), note(id="e", entry_type="chat.agent_response")
    for submission in (plain, stripped):
        keeper_like = AGENT.model_copy(update={"speaks_for": ("keeper",)})
        assert accept(AGENT, submission, NOW).content == accept(keeper_like, submission, NOW).content
    short, long = accept(AGENT, note(), NOW), accept(AGENT, note(ts="2026-11-21T09:30:00Z"), NOW)
    assert (short.entry.actor_type, short.entry.actor_id) == (long.entry.actor_type, long.entry.actor_id)


def test_an_actor_that_is_no_actor_is_a_bad_field_and_not_a_forbidden_one() -> None:
    for bad in ("robot", 7, ["user"], {"a": 1}):
        with pytest.raises(InvalidEntry) as caught:
            accept(AGENT, note(actor_type=bad), NOW)
        assert [problem.field for problem in caught.value.problems] == ["actor_type"]


# workspaces


@pytest.mark.parametrize("principal", [AGENT, ADMIN, OWNER])
def test_an_empty_workspace_is_an_error_and_not_a_missing_one(principal: Principal) -> None:
    with pytest.raises(InvalidEntry) as caught:
        accept(principal, note(workspace_id="", severity="loud"), NOW, "entries[1].")
    assert sorted(problem.field for problem in caught.value.problems) == [
        "entries[1].severity",
        "entries[1].workspace_id",
    ]
    for ask in (principal.workspace, principal.workspace_or_all):
        with pytest.raises(InvalidQuery, match="workspace_id is empty"):
            ask("")


WRITTEN_BY_PEOPLE = {"memory.consolidated"}
"""Types that the service writes and that OWNER and ADMIN may publish, too (contract §1)."""


def test_no_token_publishes_a_type_that_the_service_writes() -> None:
    """Issue 28.13: an AGENT could publish ``memory.updated`` and ``memory.searched``."""
    written = {*control_payloads()} | {UPDATED}
    assert len(written) > 60
    open_to_tokens = {name for name in written if info_of(name).publisher not in SERVICE_ALONE}
    assert open_to_tokens == WRITTEN_BY_PEOPLE


def test_the_catalogue_file_holds_the_types_of_clients_alone() -> None:
    """What the service publishes has its properties on its payload class."""
    listed = json.loads(resources.files("crew_journal.schemas").joinpath("catalogue.json").read_text("utf-8"))
    assert {info.get("publisher", "agents") for info in listed.values()} == {"agents", "vouched"}
    assert not listed.keys() & control_payloads().keys()
    assert {name: info_of(name) for name in control_payloads()} == {
        name: payload.INFO for name, payload in control_payloads().items()
    }

"""Provenance over HTTP: an agent's token is the agent's, a keeper's token the keeper's, and both say so in every answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.stack import Stack, running_stack

from crew_journal.schemas.core.principal import Role


class Clock:
    """The time, and what a test adds to it."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def stack(tmp_path: Path, clock: Clock) -> AsyncIterator[Stack]:
    async with running_stack(tmp_path, token_clock=clock) as running:
        yield running


def note(entry_type: str, **fields: Any) -> dict[str, Any]:
    return {"entry_type": entry_type, "summary": "Opened the gate", **fields}


FORGED = [
    (note("approval.granted"), "entry_type"),
    (note("keeper.decision", actor_type="keeper"), "entry_type"),
    (note("credential.revealed"), "entry_type"),
    (note("skill.learned"), "entry_type"),
    (note("run.completed", actor_type="user", actor_id="boss"), "actor_type"),
    (note("run.completed", actor_id="boss"), "actor_id"),
]


@pytest.mark.parametrize(("entry", "field"), FORGED, ids=lambda part: str(part)[:60])
async def test_an_agents_token_gets_403_naming_field_and_fix_alone_and_in_a_batch(
    stack: Stack, entry: dict[str, Any], field: str
) -> None:
    made = await stack.token(Role.AGENT, "acme", agent="ada")
    async with stack.http(made.plaintext) as http:
        for body, name in ((entry, field), ([note("run.completed"), entry], f"entries[1].{field}")):
            answer = await http.post("/v1/journal", json=body)
            assert answer.status_code == 403, answer.text
            assert answer.json()["field"] == name
            assert answer.json()["hint"]
    assert stack.store.rows("SELECT count(*) FROM journal_entries WHERE entry_type <> 'token.created'") == [(0,)]


async def test_a_keepers_token_publishes_its_own_types_as_the_keeper_until_it_expires(
    stack: Stack, clock: Clock
) -> None:
    asked = {
        "role": "AGENT", "workspace_id": "acme", "may_publish": ["keeper.*", "approval.*"], "speaks_for": ["keeper"],
        "expires_at": (datetime.now(UTC) + timedelta(days=30)).isoformat(),
    }  # fmt: skip
    async with stack.http() as owner:
        made = (await owner.post("/v1/admin/tokens", json=asked)).json()
        [listed] = (await owner.get("/v1/admin/tokens", params={"workspace_id": "acme"})).json()["tokens"]
    assert (listed["agent_id"], listed["may_publish"], listed["speaks_for"]) == (
        "keeper", ["keeper.*", "approval.*"], ["keeper"],
    )  # fmt: skip
    async with stack.http(made["token"]) as keeper:
        mine = [note("keeper.decision", actor_type="keeper", actor_id="gate"), note("approval.granted", id="granted")]
        acked = await keeper.post("/v1/journal", json=mine)
        assert acked.status_code == 201, acked.text
        for foreign in (note("credential.revealed"), note("memory.priority_changed"), note("x.y", actor_type="user")):
            assert (await keeper.post("/v1/journal", json=foreign)).status_code == 403
        seq = acked.json()["entries"][1]["seq"]
        kept = (await keeper.get("/v1/journal/granted", params={"min_seq": seq})).json()
        assert (kept["agent_id"], kept["actor_type"]) == ("keeper", "keeper")
    clock.ahead = timedelta(days=30)
    async with stack.http(made["token"]) as keeper:
        refused = await keeper.post("/v1/journal", json=note("keeper.decision"))
        assert refused.status_code == 401
        assert "expired at" in refused.json()["detail"]
        assert "create another" in refused.json()["hint"]


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"may_publish": ["token.*"]}, 400), ({"may_publish": ["Bad Type"]}, 422), ({"speaks_for": ["robot"]}, 422),
        ({"expires_at": "2020-01-01T00:00:00Z"}, 400), ({"expires_at": "tomorrow"}, 422),
        ({"role": "ADMIN", "agent_id": None, "may_publish": ["keeper.*"]}, 400),
    ],
)  # fmt: skip
async def test_a_grant_that_makes_no_sense_is_refused_by_name(stack: Stack, wrong: dict[str, Any], status: int) -> None:
    async with stack.http() as owner:
        answer = await owner.post("/v1/admin/tokens", json={"role": "AGENT", "agent_id": "gate", **wrong})
    assert answer.status_code == status, answer.text
    assert any(field in answer.text for field in ("may_publish", "speaks_for", "expires_at"))
    assert "not just _" not in answer.text, "a hint about ids"


async def test_an_empty_workspace_is_refused_wherever_one_can_be_named(stack: Stack) -> None:
    async with stack.http() as owner:
        for path, body in (
            ("/v1/journal", note("run.completed", workspace_id="")),
            ("/v1/recall", {"query": "gate", "workspace_id": ""}),
            ("/v1/recall/render", {"query": "gate", "workspace_id": ""}),
            ("/v1/admin/tokens", {"role": "ADMIN", "workspace_id": ""}),
        ):
            answer = await owner.post(path, json=body)
            assert answer.status_code in (400, 422), answer.text
            assert "workspace_id" in answer.text
        for path in ("/v1/journal", "/v1/journal/count", "/v1/admin/tokens", "/v1/status", "/v1/workspace/settings"):
            answer = await owner.get(path, params={"workspace_id": ""})
            assert answer.status_code == 400, path
            assert answer.json()["field"] == "workspace_id"

"""The configuration a managed nats-server gets, and what an agent's credentials may name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from crew_journal.services.journal.broker.config import AgentUser, BrokerIdentity, Durability, render_config

HASH = "$2b$04$" + 53 * "x"


def agent_user(name: str, *, workspace_id: str, agent_id: str, crew_id: str | None = None) -> AgentUser:
    return AgentUser(name=name, bcrypt=HASH, workspace_id=workspace_id, agent_id=agent_id, crew_id=crew_id)


def render(durability: Durability, agents: list[AgentUser]) -> str:
    return render_config(
        BrokerIdentity(port=4999),
        durability,
        agents,
        store_dir=Path('/data/a "quoted" folder/store'),
        pid_file=Path("/data/nats.pid"),
        log_file=Path("/data/nats.log"),
    )


@pytest.mark.parametrize(("durability", "sync"), [("durable", "always"), ("interval", "250ms")])
def test_the_profile_decides_when_the_server_syncs(durability: Durability, sync: str) -> None:
    rendered = json.loads(render(durability, []))
    assert rendered["jetstream"] == {"store_dir": '/data/a "quoted" folder/store', "sync_interval": sync}
    assert rendered["listen"] == "127.0.0.1:4999"
    assert "http" not in rendered


def test_an_agent_gets_an_account_with_nothing_but_its_subject() -> None:
    agent = agent_user("scout-nats", workspace_id="acme", agent_id="scout", crew_id="red")
    accounts = json.loads(render("durable", [agent]))["accounts"]
    assert accounts["JOURNAL"]["exports"] == [{"service": "ingest.>"}]
    assert accounts["AGENT-scout-nats"] == {
        "users": [
            {
                "user": "scout-nats",
                "password": HASH,
                "permissions": {
                    "publish": {"allow": ["ingest.acme.red.scout"]},
                    "subscribe": {"allow": ["_INBOX.>"]},
                },
            }
        ],
        "imports": [{"service": {"account": "JOURNAL", "subject": "ingest.acme.red.scout"}}],
    }


def test_an_agent_without_a_crew_asks_under_the_reserved_token() -> None:
    assert agent_user("a", workspace_id="w", agent_id="scout").subject == "ingest.w._.scout"


@pytest.mark.parametrize(
    "change",
    [
        {"name": "a.b"},
        {"name": ""},
        {"name": "a\n"},
        {"workspace_id": "*"},
        {"workspace_id": "_system"},
        {"agent_id": ">"},
        {"agent_id": "_"},
        {"crew_id": "red.*"},
        {"crew_id": "*"},
        {"bcrypt": "a-password-and-no-hash-of-one"},
        {"bcrypt": HASH + "\n"},
    ],
)
def test_no_name_can_widen_what_an_agent_may_publish(change: dict[str, str]) -> None:
    good = {"name": "a", "bcrypt": HASH, "workspace_id": "w", "agent_id": "scout", "crew_id": "red"}
    AgentUser.model_validate(good)
    with pytest.raises(ValidationError):
        AgentUser.model_validate(good | change)


def test_two_agents_of_one_name_are_refused_and_so_is_the_services_own() -> None:
    twice = [agent_user("a", workspace_id=w, agent_id="x") for w in ("w1", "w2")]
    with pytest.raises(ValueError, match="share a name"):
        render("durable", twice)
    with pytest.raises(ValueError, match="share a name"):
        render("durable", [agent_user("crew-journal", workspace_id="w", agent_id="x")])


def test_a_hash_does_not_show_in_a_repr() -> None:
    agent = agent_user("a", workspace_id="w", agent_id="scout")
    assert HASH not in repr(agent)

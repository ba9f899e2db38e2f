"""The publisher of an entry is whose token published it, never what the body says."""

from __future__ import annotations

import pytest
from support.journal import ADMIN, AGENT, LEAD, NOW, OWNER, note

from crew_journal.schemas.core.envelope import EntryRecorded
from crew_journal.schemas.core.principal import UNRECORDED, Principal, Role, author_shown, publisher_in, publisher_of
from crew_journal.schemas.decode import decode
from crew_journal.services.journal.intake.ingest import principal_of
from crew_journal.services.journal.intake.submission import accept


def folded(principal: Principal, **fields: str) -> EntryRecorded:
    accepted = accept(principal, note(**fields), NOW)
    headers = dict(line.split(": ", 1) for line in accepted.head.decode().split("\r\n")[1:-2])
    event = decode(1, accepted.subject, headers, accepted.body, 0)
    assert isinstance(event, EntryRecorded)
    return event


@pytest.mark.parametrize("principal", [ADMIN, OWNER])
@pytest.mark.parametrize(
    "fields", [{}, {"agent_id": "boss", "actor_type": "agent", "actor_id": "boss"}, {"priority": "high"}]
)
def test_what_an_operator_publishes_for_agents_has_one_publisher(principal: Principal, fields: dict[str, str]) -> None:
    event = folded(principal, **fields)
    assert event.publisher == f"token:{principal.token_id}" == publisher_of(principal)


@pytest.mark.parametrize("principal", [AGENT, LEAD])
def test_two_tokens_of_an_agent_are_one_publisher_over_http_and_nats(principal: Principal) -> None:
    other = principal.model_copy(update={"token_id": "t_second"})
    over_nats = principal_of(f"ingest.acme.red.{principal.agent_id}".encode())
    named = {folded(one).publisher for one in (principal, other, over_nats)}
    assert named == {f"agent:{principal.agent_id}"}


def test_no_agent_has_the_name_of_a_token() -> None:
    agent = Principal(token_id="t_1", role=Role.AGENT, workspace_id="acme", agent_id="owner")
    owner = Principal(token_id="owner", role=Role.OWNER, workspace_id=None)
    assert publisher_of(agent) != publisher_of(owner)


@pytest.mark.parametrize("header", [None, "", "ada", "agent:", "agent:a b", "agent:" + "x" * 65, "token:a/b"])
def test_a_header_of_another_form_names_no_publisher(header: str | None) -> None:
    assert publisher_in(header) is None


def test_an_author_is_named_with_who_spoke_for_it() -> None:
    assert author_shown("agent:ada", "ada") == "ada"
    assert author_shown("token:owner", "ada") == "ada (by an operator)"
    assert author_shown("token:owner", None) == "an operator"
    assert author_shown(UNRECORDED, "ada") == "ada (publisher not recorded)"

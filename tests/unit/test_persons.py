"""Which spellings are one person, and whose own words an entry is: only a token that speaks for the person vouches."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.consumers.feed.messages import headers_of
from crew_journal.schemas.access.operations import TokenRequest
from crew_journal.schemas.core.envelope import EntryRecorded
from crew_journal.schemas.core.errors import InvalidQuery, NotAllowed
from crew_journal.schemas.core.grants import is_person, person_of, speaks_for
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.decode import decode
from crew_journal.schemas.operators.rules import key_id, subject_hash
from crew_journal.services.access.tokens import token_created
from crew_journal.services.cli.administration import speaker_of
from crew_journal.services.cli.importing.sources import conversations
from crew_journal.services.cli.importing.sources.found import Notes
from crew_journal.services.journal.intake.ingest import principal_of
from crew_journal.services.journal.intake.submission import accept

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
TURN: dict[str, Any] = {
    "entry_type": "chat.user_message",
    "actor_type": "user",
    "actor_id": "maria",
    "summary": "My role is CFO.",
}


def token(role: Role = Role.AGENT, *speakers: str) -> Principal:
    agent = None if role.administers else "scout"
    return Principal(token_id="t", role=role, workspace_id="acme", agent_id=agent, speaks_for=speakers)


def vouched(principal: Principal, **fields: Any) -> bool:
    """Whether a fold takes the entry for the own words of its actor."""
    accepted = accept(principal, {**TURN, **fields}, NOW)
    event = decode(7, accepted.subject, headers_of(accepted.head), accepted.body, 0)
    assert isinstance(event, EntryRecorded)
    assert event.vouched == accepted.vouched
    return event.vouched


@pytest.mark.parametrize("spelling", ["maria", "Maria", "MARIA", " maria ", "m\u200baria", "ｍaria"])
def test_spellings_of_a_name_are_one_person(spelling: str) -> None:
    assert person_of(spelling) == "maria"
    assert subject_hash(b"k" * 32, "acme", spelling) == subject_hash(b"k" * 32, "acme", "maria")


@pytest.mark.parametrize("other", ["mario", "maria@example.org", "maria.lopez", "maria2", "marıa"])
def test_another_name_is_another_person_however_alike(other: str) -> None:
    assert person_of(other) != person_of("maria")


@given(st.text())
def test_the_person_of_a_person_is_the_same(name: str) -> None:
    assert person_of(person_of(name)) == person_of(name)


def test_the_two_sides_of_a_chat_are_not_persons() -> None:
    assert [is_person(name) for name in ("maria", "User", "HUMAN", " ", "\u200b")] == [True, False, False, False, False]


@pytest.mark.parametrize(
    "principal",
    [
        token(),
        token(Role.ADMIN),
        token(Role.OWNER),
        token(Role.AGENT, "keeper"),
        token(Role.AGENT, "user:otto"),
        token(Role.AGENT, "user:maria@example.org"),
        token(Role.AGENT, "agent:maria"),
        principal_of(b"ingest.acme.core.scout"),
    ],
)
def test_a_turn_that_another_token_submits_is_not_the_persons(principal: Principal) -> None:
    assert not vouched(principal)
    assert not vouched(principal, priority="normal", payload={"text": "x"}, supersedes=["j_1"])
    assert not vouched(principal, actor_id="Maria", data_subject_id="maria", ts="2026-11-21T09:00:00+01:00")


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("speaker", ["user:maria", "user:MARIA", "user"])
def test_a_turn_from_a_token_that_speaks_for_the_person_is_the_persons(role: Role, speaker: str) -> None:
    crew = {"crew_id": "core"} if role is Role.LEAD else {}
    agent = None if role.administers else "scout"
    speaking = Principal(token_id="t", role=role, workspace_id="acme", agent_id=agent, speaks_for=(speaker,), **crew)
    assert vouched(speaking)
    assert vouched(speaking, actor_id="Maria", ts="2026-11-21T09:00:00+01:00"), "the way through the model"
    assert vouched(speaking, actor_id="otto") == (speaker == "user")
    assert not vouched(speaking, actor_id="user")
    assert not vouched(speaking, actor_type="agent", actor_id="scout")


def test_an_entry_without_an_actor_is_the_persons_unless_it_is_an_agents_answer() -> None:
    speaking = token(Role.AGENT, "user:maria")
    unnamed = {name: value for name, value in TURN.items() if not name.startswith("actor")}
    assert accept(speaking, unnamed, NOW).entry.actor_id == "maria"
    assert accept(speaking, unnamed, NOW).vouched
    answer = accept(speaking, {**unnamed, "entry_type": "chat.agent_response"}, NOW)
    assert (answer.entry.actor_type, answer.entry.actor_id, answer.vouched) == ("agent", "scout", False)


def test_a_name_with_quotes_and_blanks_is_filled_in_as_it_is() -> None:
    name = 'Dr. "Maria" López'
    unnamed = {name: value for name, value in TURN.items() if not name.startswith("actor")}
    accepted = accept(token(Role.AGENT, f"user:{name}"), unnamed, NOW)
    assert accepted.entry.actor_id == name
    assert accepted.vouched


def test_a_message_that_names_maria_in_an_import_of_the_owner_is_not_hers(tmp_path: Path) -> None:
    messages = [{"role": "user", "name": "maria", "content": "My role is CFO."}]
    file = tmp_path / "chat.jsonl"
    file.write_text(json.dumps({"messages": messages}) + "\n")
    entries = list(conversations.read_openai_messages(file, Notes()))
    assert [entry["actor_id"] for entry in entries] == ["maria"]
    for entry in entries:
        accepted = accept(token(Role.OWNER), {**entry, "workspace_id": "acme"}, NOW)
        assert not accepted.vouched


def test_a_relayed_name_stays_refused_where_it_was() -> None:
    with pytest.raises(NotAllowed):
        accept(token(), {**TURN, "entry_type": "note"}, NOW)


@pytest.mark.parametrize("role", [Role.OWNER, Role.ADMIN])
def test_a_token_of_any_role_may_be_a_persons(role: Role) -> None:
    asked = TokenRequest(role=role, speaks_for=("user:maria@example.org", "user:Maria Lopez"))
    made = token_created("t_1", "cj_x", "acme", asked, NOW)
    assert made.bearer().agent_id is None
    assert speaks_for(made.bearer().speaks_for, "user", "maria LOPEZ")
    with pytest.raises(InvalidQuery, match="name all actors"):
        token_created("t_1", "cj_x", "acme", TokenRequest(role=role, speaks_for=("user:maria", "keeper")), NOW)
    with pytest.raises(InvalidQuery, match="name all actors"):
        token_created("t_1", "cj_x", "acme", TokenRequest(role=role, speaks_for=("user",)), NOW)


def test_a_bare_name_on_the_command_line_is_a_person() -> None:
    named = [speaker_of(name) for name in ("maria", "user:maria", "keeper", "keeper:gate", "m@example.org", "user")]
    assert named == ["user:maria", "user:maria", "keeper", "keeper:gate", "user:m@example.org", "user"]


def test_a_key_has_an_id_that_does_not_reveal_it() -> None:
    assert key_id(b"a" * 32) == key_id(b"a" * 32) != key_id(b"b" * 32)
    assert subject_hash(b"a" * 32, "w", "x")[:16] != key_id(b"a" * 32)

"""Submissions: authority from the token, every problem named, the hash of what was submitted, the shortcut's equality."""

from __future__ import annotations

import math
from datetime import UTC, timedelta
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.journal import ADMIN, AGENT, LEAD, NOW, OWNER, note

from crew_journal.schemas.core.entry import MAX_ENTRY_BYTES, JournalEntry
from crew_journal.schemas.core.envelope import EntryRecorded
from crew_journal.schemas.core.errors import EntryTooLarge, InvalidEntry, NotAllowed
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.decode import decode
from crew_journal.services.journal.broker.connection import encode_headers
from crew_journal.services.journal.intake.submission import Accepted, accept, accept_plain, content_hash, encode_entry

SOLO = Principal(token_id="t", role=Role.AGENT, workspace_id="acme", agent_id="hermit")


def fields_of(error: InvalidEntry) -> list[str]:
    return sorted(problem.field for problem in error.problems)


def headers_of(accepted: Accepted) -> dict[str, str]:
    lines = accepted.head.decode().split("\r\n")[1:-2]
    return dict(line.split(": ", 1) for line in lines)


@pytest.mark.parametrize("principal", [AGENT, LEAD])
def test_workspace_crew_and_agent_come_from_the_token(principal: Principal) -> None:
    entry = accept(principal, note(), NOW).entry
    assert (entry.workspace_id, entry.crew_id, entry.agent_id) == ("acme", "red", principal.agent_id)
    named = note(workspace_id="acme", crew_id="red", agent_id=principal.agent_id)
    assert accept(principal, named, NOW).subject == f"journal.acme.red.{principal.agent_id}.run.completed"


@pytest.mark.parametrize("principal", [AGENT, LEAD, ADMIN])
@pytest.mark.parametrize("named", ["other", "_system", "not a name"])
def test_a_body_that_names_another_workspace_is_not_allowed(principal: Principal, named: str) -> None:
    with pytest.raises(NotAllowed) as caught:
        accept(principal, note(workspace_id=named), NOW)
    assert caught.value.field == "workspace_id"


@pytest.mark.parametrize("principal", [AGENT, LEAD])
@pytest.mark.parametrize("field", ["agent_id", "crew_id"])
def test_a_body_that_names_another_agent_or_crew_is_not_allowed(principal: Principal, field: str) -> None:
    with pytest.raises(NotAllowed) as caught:
        accept(principal, note(**{field: "somebody"}), NOW, "entries[2].")
    assert caught.value.field == f"entries[2].{field}"


@pytest.mark.parametrize("field", ["summary", "entry_type"])
def test_an_empty_required_field_is_named_as_empty_and_not_as_absent(field: str) -> None:
    with pytest.raises(InvalidEntry) as caught:
        accept(ADMIN, note(**{field: ""}), NOW)
    (problem,) = caught.value.problems
    assert problem.field == field
    assert "required" not in problem.problem


def test_an_agent_without_a_crew_cannot_write_into_one() -> None:
    assert accept(SOLO, note(), NOW).subject == "journal.acme._.hermit.run.completed"
    with pytest.raises(NotAllowed, match="names no crew"):
        accept(SOLO, note(crew_id="red"), NOW)


@pytest.mark.parametrize("principal", [ADMIN, OWNER])
def test_operators_may_name_any_crew_and_agent_or_none(principal: Principal) -> None:
    workspace = principal.workspace_id or "default"
    assert accept(principal, note(), NOW).subject == f"journal.{workspace}._._.run.completed"
    named = accept(principal, note(crew_id="blue", agent_id="x"), NOW)
    assert named.subject == f"journal.{workspace}.blue.x.run.completed"


def test_a_token_for_all_workspaces_takes_the_body_s_or_default_and_never_the_system_s() -> None:
    assert accept(OWNER, note(workspace_id="beta"), NOW).workspace_id == "beta"
    assert accept(OWNER, note(), NOW).workspace_id == "default"
    for bad in ("_system", "_x", "a b", 7, ["acme"]):
        with pytest.raises(InvalidEntry) as caught:
            accept(OWNER, note(workspace_id=bad), NOW)
        assert fields_of(caught.value) == ["workspace_id"]


def test_a_bad_workspace_hides_no_other_problem() -> None:
    with pytest.raises(InvalidEntry) as caught:
        accept(OWNER, {"workspace_id": "_x", "severity": "loud", "ts": "soon", "nope": 1}, NOW, "entries[4].")
    wrong = ("entry_type", "nope", "severity", "summary", "ts", "workspace_id")
    assert fields_of(caught.value) == [f"entries[4].{name}" for name in wrong]
    assert all(problem.fix for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("fields", "way"),
    [({"entry_type": "memory.consolidated"}, "a type that agents may publish"), ({"priority": "pin"}, "priority out")],
)
def test_a_refused_authority_says_how_to_do_without(fields: dict[str, Any], way: str) -> None:
    with pytest.raises(NotAllowed) as caught:
        accept(AGENT, note(**fields), NOW)
    assert way in caught.value.hint


@pytest.mark.parametrize(
    "entry_type", ["token.created", "erasure.requested", "sweep.ticked", "memory.priority_changed"]
)
@pytest.mark.parametrize("principal", [AGENT, LEAD, ADMIN, OWNER])
def test_types_of_the_service_cannot_be_submitted_by_anybody(principal: Principal, entry_type: str) -> None:
    with pytest.raises(NotAllowed, match="service only"):
        accept(principal, {"entry_type": entry_type, "summary": "x"}, NOW)


@pytest.mark.parametrize(
    "fields", [{"priority": "high"}, {"priority": "permanent"}, {"entry_type": "memory.consolidated"}]
)
def test_priorities_and_operators_types_need_an_operator_and_go_to_control(fields: dict[str, Any]) -> None:
    for principal in (AGENT, LEAD):
        with pytest.raises(NotAllowed, match="OWNER or ADMIN"):
            accept(principal, {**note(), **fields}, NOW)
    accepted = accept(ADMIN, {**note(), **fields}, NOW)
    assert accepted.subject == f"control.acme.{fields.get('entry_type', 'run.completed')}"


def test_every_offending_field_is_named() -> None:
    bad = {"id": "a b", "entry_type": "Bad Type", "severity": "loud", "ts": "2026-02-30T00:00:00Z", "extra": 1}
    with pytest.raises(InvalidEntry) as caught:
        accept(AGENT, bad, NOW, "entries[0].")
    assert fields_of(caught.value) == [
        "entries[0].entry_type",
        "entries[0].extra",
        "entries[0].id",
        "entries[0].severity",
        "entries[0].summary",
        "entries[0].ts",
    ]


@pytest.mark.parametrize(
    "value",
    [{1, 2}, object(), math.nan, [1, {"x": -math.inf}], 2**70, b"bytes", "\ud800", {"k": "\udfff"}, {1: "key"}],
)
def test_what_json_cannot_hold_is_refused_naming_the_field(value: Any) -> None:
    with pytest.raises(InvalidEntry) as caught:
        accept(AGENT, note(payload={"v": value}), NOW)
    assert fields_of(caught.value) == ["payload"]


@pytest.mark.parametrize("not_an_object", [None, [], "text", 3])
def test_a_submission_that_is_no_object_is_refused(not_an_object: Any) -> None:
    with pytest.raises(InvalidEntry):
        accept(AGENT, not_an_object, NOW)


@pytest.mark.parametrize("depth", [90, 150, 189, 205, 240, 300])
def test_what_is_accepted_can_be_read_back_however_deep_it_is(depth: int) -> None:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    if depth > 190:
        with pytest.raises(InvalidEntry) as caught:
            accept(AGENT, note(payload={"v": value}), NOW)
        assert fields_of(caught.value) == ["payload"]
    else:
        accepted = accept(AGENT, note(payload={"v": value}), NOW)
        assert isinstance(decode(1, accepted.subject, headers_of(accepted), accepted.body, 0), EntryRecorded)


def test_an_entry_may_have_256_kib_as_stored_and_not_a_byte_more() -> None:
    overhead = len(accept(AGENT, note(id="e", payload={"x": ""}), NOW).body)
    fits = accept(AGENT, note(id="e", payload={"x": "y" * (MAX_ENTRY_BYTES - overhead)}), NOW)
    assert len(fits.body) == MAX_ENTRY_BYTES
    with pytest.raises(EntryTooLarge) as caught:
        accept(AGENT, note(id="e", payload={"x": "y" * (MAX_ENTRY_BYTES - overhead + 1)}), NOW, "entries[1].")
    assert caught.value.field == "entries[1].payload"


def test_an_id_that_the_service_might_derive_is_refused() -> None:
    with pytest.raises(InvalidEntry) as error:
        accept(OWNER, note(id="d_" + "0af9" * 8, severity="loud"), NOW)
    assert fields_of(error.value) == ["id", "severity"]
    for free in ("d_mine", "d_" + "0AF9" * 8, "d_" + "0af9" * 7):
        assert accept(AGENT, note(id=free), NOW).entry_id == free


def test_a_missing_id_is_minted_and_a_missing_time_is_the_server_s() -> None:
    one, two = accept(AGENT, note(id="", ts=None), NOW), accept(AGENT, note(), NOW)
    assert one.entry_id.startswith("j_")
    assert len(one.entry_id) == 34
    assert one.entry_id != two.entry_id
    assert not one.given_id
    assert one.entry.ts == NOW
    assert one.content == two.content


def test_the_hash_is_of_what_was_submitted_and_not_of_the_clock_or_the_order() -> None:
    base = accept(AGENT, {"summary": "x", "entry_type": "note", "id": "e", "payload": {"a": 1, "b": 2}}, NOW)
    later = NOW + timedelta(hours=1)
    same = {"id": "e", "payload": {"b": 2, "a": 1}, "entry_type": "note", "summary": "x", "refs": None, "trace_id": ""}
    assert accept(AGENT, same, later).content == base.content
    assert accept(AGENT, {**same, "agent_id": "scout", "workspace_id": "acme"}, later).content == base.content
    assert accept(AGENT, {**same, "summary": "y"}, NOW).content != base.content
    assert accept(LEAD, same, NOW).content != base.content
    assert len(bytes.fromhex(base.content)) == 16


def test_the_headers_of_an_entry_are_the_event_format_s() -> None:
    accepted = accept(AGENT, note(id="e"), NOW)
    assert headers_of(accepted) == {
        "Nats-Msg-Id": "acme/e",
        "Crew-Entry-Id": "e",
        "Crew-Content-Hash": accepted.content,
        "Crew-Publisher": f"agent:{AGENT.agent_id}",
        "Crew-Format": "1",
    }
    assert accepted.head == encode_headers(headers_of(accepted))


_ids = st.one_of(
    st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True), st.sampled_from(["", "_", "a b", "ä", "x" * 65])
)
_texts = st.one_of(st.text(max_size=40), st.sampled_from(["", " ", "a\nb", "\u2028", "x" * 2_001, "\xa0", "naïve ✓"]))
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
_times = st.one_of(
    st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.isoformat()),
    st.sampled_from(
        [
            "2026-11-21T09:30:00.000Z",
            "2026-02-30T00:00:00.000Z",
            "2026-11-21T09:30:00Z",
            "2026-11-21T09:30:00.123456+02:00",
            "2026-11-21T24:00:00.000Z",
            "2026-11-21T23:59:60.000Z",
            "٢026-11-21T09:30:00.000Z",
            "0000-01-01T00:00:00.000Z",
            "",
        ]
    ),
)
_odd = st.fixed_dictionaries(
    {},
    optional={
        "id": _ids,
        "workspace_id": st.sampled_from(["acme", "", None]),
        "crew_id": _ids | st.none(),
        "agent_id": _ids | st.none(),
        "trace_id": _ids | st.integers(),
        "mission_id": _ids | st.none(),
        "span_id": _ids | st.booleans(),
        "ts": _times,
        "entry_type": st.sampled_from(["note", "a.b.c.d", "a.b.c.d.e", "Bad", "", "token.created", "x" * 49]),
        "severity": st.sampled_from(["info", "error", "loud", "", None, 1]),
        "priority": st.sampled_from(["normal", "pin", "", None]),
        "actor_type": st.sampled_from(["agent", "user", "robot", None]),
        "actor_id": _texts | st.sampled_from(["y" * 129]),
        "summary": _texts | st.integers(),
        "payload": st.dictionaries(st.text(max_size=4), _values, max_size=3) | st.none() | st.lists(st.integers()),
        "refs": st.dictionaries(st.text(max_size=4), _values, max_size=2),
        "data_subject_id": _texts,
        "schema_version": st.sampled_from([1, 2, 32_767, 32_768, 0, True, 1.0, "1"]),
        "surprise": st.integers(),
        "valid_at": _times,
        "supersedes": st.lists(_ids, max_size=3) | st.just(["a"] * 101) | st.just("a"),
    },
)


_plain = st.fixed_dictionaries(
    {"entry_type": st.sampled_from(["run.completed", "note", "x.y"]), "summary": st.text(min_size=1, max_size=30)},
    optional={
        "id": st.from_regex(r"[a-z]{1,9}", fullmatch=True),
        "trace_id": st.just("run-1"),
        "severity": st.just("warn"),
    },
)
_submissions = st.builds(
    lambda plain, odd, kept: {**plain, **{name: odd[name] for name in list(odd)[-kept:]}},
    _plain,
    _odd,
    st.integers(1, 3),
)


@given(_submissions)
def test_the_shortcut_never_accepts_what_the_model_would_not_store_the_same_way(submission: dict[str, Any]) -> None:
    record = {name: value for name, value in submission.items() if value is not None and value != ""}
    record["workspace_id"] = "acme"
    short = accept_plain(record, NOW, "agent", "scout", "agent:scout")
    if short is None:
        return
    content = content_hash(record)
    actor = {} if "actor_type" in record else {"actor_type": "agent", "actor_id": "scout"}
    entry = JournalEntry.model_validate({"id": short.entry_id, "ts": NOW, **actor, **record})
    long = encode_entry(entry, content, control=False, given_id="id" in record, publisher="agent:scout")
    assert orjson.loads(short.body) == orjson.loads(long.body)
    assert (short.subject, short.head, short.content) == (long.subject, long.head, long.content)
    assert (short.workspace_id, short.entry_id, short.identity) == (long.workspace_id, long.entry_id, long.identity)
    assert short.given_id == long.given_id
    assert isinstance(decode(1, short.subject, headers_of(short), short.body, 0), EntryRecorded)


@given(_submissions)
def test_a_submission_is_accepted_or_refused_by_name_and_never_fails_otherwise(submission: dict[str, Any]) -> None:
    try:
        accepted = accept(ADMIN, submission, NOW)
    except (InvalidEntry, NotAllowed):
        return  # anything else fails the test
    event = decode(1, accepted.subject, headers_of(accepted), accepted.body, 0)
    assert isinstance(event, EntryRecorded)
    assert event.content.hex() == accepted.content
    assert event.entry == accepted.entry


def test_an_ordinary_submission_takes_the_shortcut() -> None:
    ordinary = note(
        payload={"question": "why"}, trace_id="run-1", ts="2026-11-21T09:30:00.000Z", severity="warn", actor_type="user",
        supersedes=["e1"], valid_at="2026-11-20T00:00:00.000Z",
    )  # fmt: skip
    named = {**ordinary, "workspace_id": "acme", "agent_id": "scout"}
    assert accept_plain(named, NOW, "agent", "scout", "agent:scout") is not None

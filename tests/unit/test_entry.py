from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.schemas.core.entry import JournalEntry, build_entry
from crew_journal.schemas.core.errors import InvalidEntry

RECORD = {
    "id": "j_1",
    "workspace_id": "default",
    "ts": "2026-11-21T09:30:00.123Z",
    "entry_type": "peer.escalation",
    "summary": "Checkout is out of memory",
}


def refused(**change):
    with pytest.raises(InvalidEntry) as caught:
        build_entry({**RECORD, **change})
    return caught.value


def test_every_offending_field_is_named_with_its_fix():
    error = refused(severity="loud", ts="2026-11-21T09:30:00", summary="\n", extra=1, crew_id="a.b")
    assert {p.field for p in error.problems} == {"severity", "ts", "summary", "extra", "crew_id"}
    assert all(p.fix for p in error.problems)


@pytest.mark.parametrize(
    "ts",
    [
        "2026-11-21T09:30:00",
        "2026-02-30T00:00:00Z",
        "2026-11-21",
        "yesterday",
        1763717400,
        "1763717400",
        "2026-11-21T24:00:01Z",
        "0001-01-01T00:00:00+14:00",
        None,
    ],
)
def test_a_naive_or_impossible_time_is_an_error(ts):
    assert refused(ts=ts).field == "ts"


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("2026-11-21T09:30:00Z", "2026-11-21T09:30:00.000Z"),
        ("2026-11-21t11:30:00.123999+02:00", "2026-11-21T09:30:00.123Z"),
        ("2026-11-21 09:30:00.1z", "2026-11-21T09:30:00.100Z"),
        ("1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999Z"),
    ],
)
def test_times_are_stored_in_utc_with_milliseconds(text, stored):
    assert build_entry({**RECORD, "ts": text}).to_record()["ts"] == stored


def test_line_breaks_of_a_summary_become_blanks():
    entry = build_entry({**RECORD, "summary": "a\r\nb\nc\u2028d\x85e\tf"})
    assert entry.summary == "a b c d e\tf"


@pytest.mark.parametrize("length", [0, 2_001])
def test_a_summary_has_1_to_2000_characters(length):
    assert refused(summary="x" * length).field == "summary"
    assert build_entry({**RECORD, "summary": "x" * 2_000}).summary


def test_empty_optional_ids_are_stored_as_null():
    entry = build_entry({**RECORD, "crew_id": "", "trace_id": "", "actor_id": ""})
    assert entry.crew_id is entry.trace_id is entry.actor_id is None
    assert "crew_id" not in entry.to_record()


@pytest.mark.parametrize("value", ["_", "a b", "a.b", "ä", "x" * 65, "a\n", "*", ">"])
@pytest.mark.parametrize("field", ["id", "crew_id", "agent_id", "mission_id", "trace_id", "span_id"])
def test_ids_keep_to_their_alphabet(field, value):
    assert refused(**{field: value}).field == field


@pytest.mark.parametrize("value", ["Run.started", "a..b", "a.b.c.d.e", "a-b", ".a", "a.", "x" * 49, "a\n"])
def test_entry_types_are_one_to_four_lower_case_words(value):
    assert refused(entry_type=value).field == "entry_type"


def test_unknown_types_are_accepted():
    assert build_entry({**RECORD, "entry_type": "deploy.window_opened"}).entry_type == "deploy.window_opened"


@pytest.mark.parametrize("field", ["payload", "refs"])
@pytest.mark.parametrize("value", [[], "x", 1, None])
def test_payload_and_refs_are_objects(field, value):
    assert refused(**{field: value}).field == field


def test_an_error_never_quotes_the_offending_text():
    assert "secret-token" not in str(refused(crew_id="secret-token!!"))


@given(
    st.datetimes(timezones=st.just(UTC)),
    st.text(min_size=1, max_size=200).filter(lambda s: s.strip() and not s.isspace()),
    st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=20) | st.none(), max_size=4),
)
def test_a_stored_record_reads_back_as_the_same_entry(ts: datetime, summary, payload):
    entry = build_entry({**RECORD, "ts": ts, "summary": summary, "payload": payload})
    assert JournalEntry.model_validate(entry.to_record()) == entry

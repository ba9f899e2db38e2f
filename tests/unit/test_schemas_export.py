"""The JSON Schema that agents in other languages validate with says what the service says."""

import json
import sys
from importlib import resources
from typing import Any

import jsonschema_rs
import pytest
from support.journal import NOW, OWNER, note

from crew_journal.schemas.catalogue import catalogue, entry_json_schema, info_of, stored_json_schema
from crew_journal.schemas.core.entry import JournalEntry
from crew_journal.schemas.core.errors import InvalidEntry, NotAllowed
from crew_journal.schemas.core.payload import SERVICE_ALONE
from crew_journal.services.journal.intake.submission import accept

SUBMITTED = jsonschema_rs.validator_for(entry_json_schema())  # without formats, as most validators are by default
STORED = jsonschema_rs.validator_for(stored_json_schema())
IDS = ("id", "crew_id", "agent_id", "mission_id", "trace_id", "span_id")
NAMES = ("actor_id", "data_subject_id")
BLANKS = "".join(chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace())

ALLOWED: list[dict[str, Any]] = [
    {},
    {"summary": "x"},
    {"summary": "x" * 2_000},
    {"summary": "😀" * 2_000},
    {"summary": " x "},
    {"summary": "\u200b"},
    {"summary": "two\nlines"},
    {"entry_type": "of.a.kind.unheard"},
    {"entry_type": "memory.consolidated"},
    {"entry_type": "tokens.spent"},
    {"workspace_id": "w"},
    {"workspace_id": "-_"},
    {"workspace_id": "w" * 64},
    {"workspace_id": None, "id": None, "ts": None},
    *({name: value} for name in IDS for value in ("a", "__", "count", "stream", "-", "A" * 64)),
    *({name: None} for name in (*IDS, *NAMES)),
    {"id": "d_x"},
    {"ts": "2026-11-22T09:30:00Z"},
    {"ts": "2026-11-22 09:30:00.123456789+23:59"},
    {"ts": "2026-11-22t09:30:00z"},
    {"severity": "error", "priority": "permanent", "actor_type": "orchestrator"},
    *({name: value} for name in NAMES for value in ("x", "x" * 128, "Zoë of <crew>")),
    {"payload": {}, "refs": {"a": [1, None, "x", 1e300]}},
    {"schema_version": 32_767},
    *({"supersedes": ids} for ids in ([], ["a"], ["a", "__", "A" * 64], ["a"] * 100)),
    *({"valid_at": value} for value in ("2026-11-22T09:30:00Z", "0001-01-01T00:00:00Z", "9999-12-31t23:59:59.999z")),
    {"valid_at": None},
]
REFUSED: list[dict[str, Any]] = [
    {"summary": ""},
    {"summary": " "},
    {"summary": BLANKS},
    *({"summary": blank} for blank in BLANKS),
    {"summary": "x" * 2_001},
    {"summary": None},
    {"summary": 5},
    *({"entry_type": value} for value in ("", "A", "a..b", "a.b.c.d.e", ".a", "a.", "a-b", "a" * 49, None, 5)),
    *({"workspace_id": value} for value in ("_", "_system", "_w", "a b", "w" * 65, 5)),
    *({name: value} for name in IDS for value in ("_", "a b", "a.b", "é", "a\n", "A" * 65, 5, ["a"])),
    {"id": "d_" + "0" * 32},
    *(
        {name: value}
        for name in ("ts", "valid_at")
        for value in (
            "2026-11-22T09:30:00",
            "2026-11-22",
            "yesterday",
            "2026-13-22T09:30:00Z",
            "2026-11-32T09:30:00Z",
            "2026-11-22T24:30:00Z",
            "2026-11-22T09:60:00Z",
            "2026-11-22T09:30:60Z",
            "2026-11-22T09:30Z",
            "2026-11-22T09:30:00+24:00",
            "2026-11-22T09:30:00.Z",
            1_700_000_000,
        )
    ),
    {"severity": "fatal"},
    {"priority": "low"},
    {"actor_type": "robot"},
    *({name: value} for name in NAMES for value in ("x" * 129, "two\nlines", "\x7f", "\u2028", 5)),
    *({name: value} for name in ("payload", "refs") for value in ([], "x", 5)),
    *({"schema_version": value} for value in (0, -1, 32_768, 1.5, "one")),
    *({"supersedes": ids} for ids in (["_"], ["a b"], ["A" * 65], [1], "a", ["a"] * 101, {"a": 1}, [None])),
    {"colour": "red"},
]


def shown(case: dict[str, Any]) -> str:
    return ascii(case)[:80]


def is_accepted(submission: dict[str, Any]) -> bool:
    try:
        accept(OWNER, submission, NOW)
    except (InvalidEntry, NotAllowed):
        return False
    return True


@pytest.mark.parametrize(
    ("name", "make"), [("entry.schema.json", entry_json_schema), ("entry_stored.schema.json", stored_json_schema)]
)
def test_the_committed_json_schema_is_current(name, make):
    committed = json.loads(resources.files("crew_journal.schemas").joinpath(name).read_text())
    assert committed == make(), f"schemas/{name} is old: run `make generate`"


def test_a_submission_needs_only_a_type_and_a_summary():
    assert sorted(entry_json_schema()["required"]) == ["entry_type", "summary"]


@pytest.mark.parametrize("case", ALLOWED, ids=shown)
def test_what_the_service_accepts_the_schema_allows_and_as_it_is_stored_too(case):
    assert is_accepted(note(**case))
    assert SUBMITTED.is_valid(note(**case))
    STORED.validate(json.loads(accept(OWNER, note(**case), NOW).body))


@pytest.mark.parametrize("case", REFUSED, ids=shown)
def test_what_the_service_refuses_the_schema_refuses(case):
    assert not is_accepted(note(**case))
    assert not SUBMITTED.is_valid(note(**case))


@pytest.mark.parametrize("known", sorted(catalogue()))
def test_a_type_that_only_the_service_publishes_is_refused_by_both(known):
    entry_type = known.replace("*", "anything")
    expected = info_of(entry_type).publisher not in SERVICE_ALONE
    assert SUBMITTED.is_valid(note(entry_type=entry_type)) is expected
    assert is_accepted(note(entry_type=entry_type)) is expected


def test_every_field_of_an_entry_is_tried_both_ways():
    assert {name for case in ALLOWED for name in case} == set(JournalEntry.model_fields)
    assert {name for case in REFUSED for name in case} - {"colour"} == set(JournalEntry.model_fields)

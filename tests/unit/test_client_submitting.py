"""What is appended leaves the client as JSON that says the same, in requests that the service takes, or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from crew_journal.schemas.core.entry import JournalEntry
from crew_journal.schemas.core.errors import FieldProblem, InvalidEntry, InvalidQuery
from crew_journal.schemas.core.limits import MAX_BATCH, MAX_BATCH_BYTES
from crew_journal.services.client import AsyncCrewJournal, CrewJournal
from crew_journal.services.client.core import encoded, encoded_batch, in_batches, places_from

ENTRY = {"entry_type": "a.b", "summary": "said"}
ITSELF: list[Any] = []
ITSELF.append(ITSELF)


def deep() -> Any:
    found: Any = []
    for _ in range(100_000):
        found = [found]
    return found


def test_a_time_is_written_as_text_and_one_without_an_offset_is_left_to_the_service() -> None:
    berlin = datetime(2026, 11, 22, 10, 30, tzinfo=timezone(timedelta(hours=1)))
    assert json.loads(encoded(ENTRY | {"ts": berlin}))["ts"] == "2026-11-22T10:30:00+01:00"
    assert json.loads(encoded(ENTRY | {"payload": {"at": berlin}}))["payload"] == {"at": "2026-11-22T10:30:00+01:00"}
    assert json.loads(encoded(ENTRY | {"ts": datetime(2026, 11, 22)}))["ts"] == "2026-11-22T00:00:00"  # noqa: DTZ001  # what is tested


def test_an_id_that_was_given_is_kept_and_one_that_was_not_is_minted() -> None:
    assert json.loads(encoded(ENTRY | {"id": "mine"}))["id"] == "mine"
    first, second = (json.loads(encoded(ENTRY | {"id": ""}))["id"] for _ in range(2))
    assert first.startswith("j_")
    assert first != second


def test_an_entry_of_the_model_is_sent_as_it_is_stored() -> None:
    record = {"id": "a", "workspace_id": "w", "ts": "2026-11-22T09:30:00.000Z", "payload": {"n": None}, "refs": {}}
    sent = json.loads(encoded(JournalEntry.model_validate(ENTRY | record)))
    assert sent == ENTRY | record | {
        "severity": "info",
        "priority": "normal",
        "actor_type": "agent",
        "schema_version": 1,
    }


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"n": float("nan")}, "not finite"),
        ({"n": float("inf")}, "not finite"),
        ({"n": 10**5_000}, "far too large"),
        ({"n": {1, 2}}, "holds a set"),
        ({"n": b"x"}, "holds a bytes"),
        ({"n": "\ud800"}, "surrogate"),
        ({("a", "b"): 1}, "key"),
        (ITSELF, "holds itself"),
        (deep(), "nested"),
    ],
)
def test_what_json_cannot_hold_is_refused_by_the_name_of_its_field(value: Any, said: str) -> None:
    with pytest.raises(InvalidEntry) as refused:
        encoded(ENTRY | {"payload": value})
    (problem,) = refused.value.problems
    assert problem.field == "payload"
    assert said in problem.problem


def test_every_such_field_is_named_and_the_entry_by_its_place() -> None:
    with pytest.raises(InvalidEntry) as refused:
        encoded_batch([ENTRY, ENTRY | {"summary": "\udfff", "refs": {"a": b""}}])
    assert [problem.field for problem in refused.value.problems] == ["entries[1].summary", "entries[1].refs"]
    model = JournalEntry.model_validate(
        ENTRY | {"id": "a", "workspace_id": "w", "ts": datetime.now(UTC), "payload": {"n": float("nan")}}
    )
    with pytest.raises(InvalidEntry, match="payload: holds a number"):
        encoded(model)


@pytest.mark.parametrize("value", ["text", 5, None, ["entry_type"]])
def test_what_is_no_entry_at_all_is_refused(value: Any) -> None:
    with pytest.raises(InvalidEntry, match=f"is a {type(value).__name__}"):
        encoded(value)


def test_batches_end_at_their_number_of_entries_and_well_before_the_service_refuses_their_bytes() -> None:
    assert [len(batch) for batch in in_batches([ENTRY] * 7, 3)] == [3, 3, 1]
    large = [ENTRY | {"id": f"n{n}", "payload": {"text": "é" * 50_000}} for n in range(400)]
    batches = list(in_batches(large, 500))
    assert len(batches) > 1
    assert max(sum(map(len, batch)) for batch in batches) < MAX_BATCH_BYTES / 2
    assert [json.loads(record)["id"] for batch in batches for record in batch] == [entry["id"] for entry in large]


def test_batches_are_taken_from_what_is_given_only_as_they_are_needed() -> None:
    taken = []

    def entries() -> Iterator[dict[str, Any]]:
        for n in range(100):
            taken.append(n)
            yield ENTRY

    next(in_batches(entries(), 5))
    assert len(taken) == 6


@pytest.mark.parametrize("flavour", [CrewJournal, AsyncCrewJournal])
@pytest.mark.parametrize("batch", [0, -1, MAX_BATCH + 1])
def test_a_batch_of_no_size_is_refused_at_once(flavour: type[Any], batch: int) -> None:
    with pytest.raises(InvalidQuery, match="batch"):
        flavour("http://127.0.0.1:9", "cj_x").append_many([ENTRY], batch=batch)


def test_an_error_of_a_later_request_names_the_entry_by_its_place_among_all() -> None:
    with pytest.raises(InvalidEntry, match=r"entries\[1003\]\.ts: bad") as refused, places_from(1_000):
        raise InvalidEntry((FieldProblem("entries[3].ts", "bad"),))
    assert refused.value.problems[0].field == refused.value.field == "entries[1003].ts"

import json

from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from crew_journal.schemas.core.entry import JournalEntry
from crew_journal.schemas.core.plain_entry import PLAIN_FIELDS, plain_entry

BASE = {"id": "j_1", "workspace_id": "w", "ts": "2026-11-21T09:30:00.000Z", "entry_type": "a.b", "summary": "x"}
NASTY = st.sampled_from(
    [None, "", " ", "_", "a b", "x\n", "é", "2026-02-30T00:00:00.000Z", "2026-11-21T09:30:00Z", "normal", "pin", "INFO",
     "warn", "user", {}, {"a": [1]}, [], 0, 1, 40_000, True, 1.0, "x" * 65, "x" * 2_001, "a.b.c.d.e", "\u2028", "_system",
     ["a"], ["a", "-"], ("a",), ["_"], ["a b"], [1], ["a"] * 100, ["a"] * 101, "2026-11-21T09:30:00.001Z"]
)  # fmt: skip


@given(
    st.dictionaries(st.sampled_from([*PLAIN_FIELDS, "extra"]), NASTY | st.text(max_size=8), max_size=5), st.booleans()
)
def test_the_shortcut_accepts_only_what_the_model_accepts_and_as_the_same_entry(change, complete):
    record = {**BASE, **change} if complete else change
    entry = plain_entry(dict(record))
    if entry is None:
        return
    try:
        judged = JournalEntry.model_validate(record)
    except ValidationError as error:
        raise AssertionError(f"the model refuses what the shortcut took: {record}") from error
    assert entry == judged
    assert entry.to_record() == judged.to_record()
    assert entry.model_dump() == judged.model_dump()
    assert hash(json.dumps(entry.to_record())) == hash(json.dumps(judged.to_record()))


def test_an_ordinary_stored_entry_takes_the_shortcut():
    full = {
        **BASE, "crew_id": "c", "agent_id": "a", "trace_id": "t", "severity": "warn", "priority": "pin",
        "actor_type": "user", "actor_id": "Maria", "payload": {"a": 1}, "refs": {"episodic": True}, "schema_version": 2,
        "supersedes": ["a", "b"], "valid_at": "2026-11-20T00:00:00.000Z",
    }  # fmt: skip
    entry = plain_entry(full)
    assert entry is not None
    assert entry == JournalEntry.model_validate(full)

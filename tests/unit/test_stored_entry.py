"""An entry on its way into an answer."""

from __future__ import annotations

import json

import pytest
from support.recall import recorded

from crew_journal.services.entries.rows import StoredEntry


@pytest.mark.parametrize("number", [1, 2**64 - 1, 2**64, -(2**70)])
def test_an_entry_that_was_just_committed_is_shown_with_whole_numbers_of_any_size(number: int) -> None:
    shown = json.loads(StoredEntry.of_event(recorded(3, "größe", payload={"n": number})).to_json())
    assert shown["payload"] == {"n": number}
    assert shown["summary"] == "größe"
    assert (shown["supersedes"], shown["valid_at"]) == ([], None)

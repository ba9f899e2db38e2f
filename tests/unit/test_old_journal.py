"""A journal of the time before the format was frozen gives the views that it gave then."""

from __future__ import annotations

import json

from support.old_journal import FOLDED, folded


async def test_a_journal_of_older_code_folds_into_the_rows_of_that_day() -> None:
    expected = json.loads(FOLDED.read_text("utf-8"))
    found = await folded(expected["tables"])
    assert found["parked"] == expected["parked"]
    for table, rows in expected["tables"].items():
        assert found["tables"][table] == rows, f"{table} is another; see tests/support/old_journal.py"

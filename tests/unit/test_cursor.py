from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.schemas.core.errors import InvalidQuery
from crew_journal.schemas.core.ids import is_id
from crew_journal.services.entries.filters import Cursor

IDS = st.text("abcXYZ019_-", min_size=1, max_size=64).filter(is_id)
TIMES = st.integers(-62_135_596_800_000, 253_402_300_799_999)  # the years 1 to 9999


@given(TIMES, IDS)
def test_a_cursor_is_read_back_as_it_was_written(ts_ms: int, entry_id: str) -> None:
    cursor = Cursor(ts_ms, entry_id)
    assert Cursor.parse(str(cursor)) == cursor


@pytest.mark.parametrize(
    "text",
    [
        "", "|", "1", "1|", "|a", "x|a", "1|a|b", "1|_", "1| a", " 1|a", "1|a\n", "+1|a", "1_0|a", "١|a", "1.0|a",
        "1|" + "a" * 65, "9" * 16 + "|a", "1|a;--", "1|ä",
    ],
)  # fmt: skip
def test_a_malformed_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidQuery, match="cursor is malformed"):
        Cursor.parse(text)


@given(st.lists(st.tuples(TIMES, IDS), max_size=20))
def test_cursors_order_as_pages_do(pairs: list[tuple[int, str]]) -> None:
    assert [(c.ts_ms, c.entry_id) for c in sorted(Cursor(*pair) for pair in pairs)] == sorted(pairs)

"""Times as text and as milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crew_journal.schemas.core.timestamps import format_ms, format_ts, from_ms, parse_ts, to_ms

FIRST_MS = to_ms(datetime(1, 1, 1, tzinfo=UTC))
LAST_MS = to_ms(datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC))


@given(st.integers(FIRST_MS, LAST_MS))
@example(FIRST_MS)
@example(-1)
@example(0)
@example(LAST_MS)
def test_milliseconds_are_written_as_their_instant_is_and_read_back(ms: int) -> None:
    assert format_ms(ms) == format_ts(from_ms(ms))
    assert to_ms(parse_ts(format_ms(ms))) == ms


@pytest.mark.parametrize("offset", ["+24:00", "-24:00", "+25:00", "-99:99"])
def test_an_offset_of_a_day_or_more_is_refused_with_a_message(offset: str) -> None:
    with pytest.raises(ValueError, match=r"^the offset lies outside -23:59 to \+23:59$"):
        parse_ts(f"2026-11-22T09:30:00{offset}")

"""Choosing what is filed: many texts that differ in a number are compared without reading each text again and again."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from crew_journal.consumers.palace import exchange_filing as palace_filing
from crew_journal.consumers.palace.exchange_filing import Filed
from crew_journal.schemas.text.marks import Marks, marks_by_kind

FILED, ASKED = 300, 40
VECTOR = np.ones(1, "<f4")


def piece(number: int) -> Any:
    text = f"User: shipment {number} has left the depot"
    return SimpleNamespace(
        text=text, drawer_id=f"d{number}", entry_id=f"e{number}", text_hash=number, vector=VECTOR.tobytes()
    )


def test_each_text_is_read_once_however_many_drawers_are_near(monkeypatch: pytest.MonkeyPatch) -> None:
    read: Counter[str] = Counter()

    def counted(text: str) -> Marks:
        read[text] += 1
        return marks_by_kind(text)

    monkeypatch.setattr(palace_filing, "marks_by_kind", counted)
    texts = {f"d{n}": piece(n).text for n in range(FILED)}
    again = piece(7)
    again.drawer_id, again.text_hash = "other", -1
    asked = [piece(FILED + n) for n in range(ASKED)]
    pieces = [*asked, again]
    filed = Filed(frozenset(), frozenset(), [list(texts)] * len(pieces), texts, FILED)
    counts: Counter[str] = Counter()
    assert palace_filing.chosen_pieces(cast(Any, pieces), filed, counts) == asked
    assert counts == {"duplicates": 1}
    assert set(read.values()) == {1}
    assert len(read) == FILED + ASKED

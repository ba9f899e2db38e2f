"""The worked example of docs/importance.md, lived through on real views: the page shows what this test measures."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from support.events import EPOCH_MS, at, control, entry
from support.recalling import MINI, recalling

from crew_journal.schemas.core.derived import OutgoingMessage, encode_vector
from crew_journal.schemas.core.envelope import VectorDerived
from crew_journal.schemas.core.timestamps import DAY_MS, format_ms
from crew_journal.schemas.recall.events import MemoryReferenced, PriorityChanged, ReferencedEntry
from crew_journal.schemas.sweeps.events import SweepTicked

PAGE = Path(__file__).parents[2] / "docs" / "importance.md"
AGE_DAYS, FRESH_DAYS, WEEKS = 150, 5, 21
NOTES = {
    "stale": ("peer.conversation", "info", 1.0),
    "pinned": ("peer.conversation", "info", 0.9),
    "recalled": ("peer.conversation", "info", 0.9),
    "escalation": ("peer.escalation", "warn", 0.9),
    "fresh": ("peer.conversation", "info", 0.9),
}
"""Name → type, severity and cosine with the question."""


def fact(name: str, entry_seq: int) -> OutgoingMessage:
    entry_type, severity, cosine = NOTES[name]
    values = np.array([cosine, np.sqrt(1 - cosine**2), 0, 0], "<f4").tobytes()
    return encode_vector(
        VectorDerived(0, "w1", name, entry_seq, "mini", 4, values, "ab", entry_type, severity, "normal", "c1", "a1",
                      EPOCH_MS, EPOCH_MS, "embed@1"), 1,
    )  # fmt: skip


async def test_a_stale_entry_sinks_and_a_recalled_or_pinned_one_stays(tmp_path: Path) -> None:
    async with recalling(tmp_path) as live:
        sweep_ms = EPOCH_MS + AGE_DAYS * DAY_MS

        async def fold(published_ms: int, *messages: OutgoingMessage) -> None:
            raw = [at(live.seq + number, message) for number, message in enumerate(messages, 1)]
            live.seq = raw[-1].seq
            await live.host.fold([dataclasses.replace(message, published_ms=published_ms) for message in raw])

        async def ranking(recipe: str) -> dict[str, float]:
            answer = await live.recall(query="zebra", recipe=recipe, explain=True, min_seq=live.seq)
            return {hit.entry_id: hit.explain.importance for hit in answer.hits if hit.entry_id in NOTES}

        await fold(EPOCH_MS, MINI)
        for name, (entry_type, severity, _) in NOTES.items():
            indexed_ms = sweep_ms - FRESH_DAYS * DAY_MS if name == "fresh" else EPOCH_MS
            flags: dict[str, Any] = {"entry_type": entry_type, "severity": severity, "refs": {"episodic": True}}
            await fold(indexed_ms, entry(name, summary=f"the pool has ten connections, {name}", **flags))
            await fold(indexed_ms, fact(name, live.seq))
        pin = PriorityChanged.model_validate(
            {"target_entry_id": "pinned", "previous_priority": "normal", "new_priority": "pin", "reason": "keep"}
        )
        used = MemoryReferenced(
            entries=tuple(ReferencedEntry(entry_id=name, count=WEEKS) for name in ("recalled", "escalation"))
        )
        await fold(EPOCH_MS, control(pin, "p1", workspace="w1"), control(used, "r1", workspace="w1"))
        before = await ranking("dense")
        assert list(before)[:2] == ["escalation", "stale"], "nothing counts before the night"
        tick = SweepTicked(sweep="decay", due=format_ms(sweep_ms))
        await fold(sweep_ms, control(tick, "t1", workspace="w1"))
        for recipe in ("dense", "robust"):
            after = await ranking(recipe)
            assert list(after) == ["fresh", "escalation", "pinned", "recalled", "stale"], recipe
    shown = [f"| `{name}` |" for name in after]
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith(tuple(shown))]
    assert [line.split("`")[1] for line in rows] == list(after)
    for line in rows:
        name = line.split("`")[1]
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[-2:] == [f"{before[name]:.3f}", f"{after[name]:.3f}"], line

"""How a feed delivers a stream: in batches, some of them twice, some lost to a crash and delivered again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hypothesis import strategies as st

from crew_journal.consumers.feed.messages import RawMessage


@dataclass(frozen=True, slots=True)
class Cut:
    """One delivery of the feed."""

    messages: Sequence[RawMessage]
    crash: Literal["", "before commit", "after commit"] = ""


@st.composite
def deliveries(
    draw: st.DrawFn, stream: Sequence[RawMessage], *, repeats: bool = False, crashes: bool = False
) -> list[Cut]:
    """The stream cut into batches, some delivered again from further back, some lost to a crash and delivered again."""
    cuts: list[Cut] = []
    start = 0
    while start < len(stream):
        end = min(len(stream), start + draw(st.integers(1, 12)))
        if crashes and draw(st.integers(0, 2)) == 0:
            cuts.append(Cut(stream[start:end], draw(st.sampled_from(["before commit", "after commit"]))))
        cuts.append(Cut(stream[start:end]))
        if repeats and draw(st.booleans()):
            cuts.append(Cut(stream[max(0, end - draw(st.integers(1, 8))) : end]))
        start = end
    return cuts

"""When nudges are due, and their texts: contract §10; seed 1, "In-session memory nudge".

Invariants: pure; instants are milliseconds since the epoch and compared as numbers ([TRAP] §9: compared as text, a
window of 24 h stretched to the start of the day); no call is counted twice, even if several entries record it. A
nudge is for the user turn, never for the cached system prompt, and it is marked, so that ``strip_nudges``
finds it again.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ..recall.render import TAG as MEMORY_TAG

VERSION: Final = 1

NudgeKind = Literal["memory", "cost"]
KINDS: Final[tuple[NudgeKind, ...]] = ("memory", "cost")

MEMORY_THRESHOLD: Final = 30
"""Number of entries since the last update of the memory from which on a nudge is due (seed 1; contract §0, row 3)."""
MEMORY_MARKERS: Final = ("memory.updated", "summary.generated")
"""Each resets the count (contract §0, row 3) and is not counted itself."""
MEMORY_FALLBACK_MS: Final = 30 * 86_400_000
"""Without a marker, the last 30 days count."""
COST_WINDOW_MS: Final = 86_400_000
"""The trailing 24 hours."""
COST_DEFAULT_USD: Final = 1.0
"""Default cost above which the cost nudge is due (contract §0, row 4)."""
COST_TYPES: Final = ("llm.call", "cost.incurred")
USD_FIELDS: Final = ("cost_usd", "usd")
"""Fields of the payload that hold a price in US dollars; the first number counts."""
TOKEN_FIELDS: Final = ("tokens", "total_tokens")
"""Fields that hold the number of all tokens of a call; the first number counts."""
TOKEN_PARTS: Final = (("input_tokens", "output_tokens"), ("prompt_tokens", "completion_tokens"))
"""Pairs of fields that hold input and output tokens; the first pair with a number counts."""
MOST: Final = 1e12
"""Largest number of dollars or tokens of one entry that counts: a thousand times what a frontier model reads in a day.
Numbers without bound made sums infinite, and an infinite count of tokens ended in an exception instead of a nudge."""
CALL_FIELDS: Final = ("call_id", "llm_call_id", "parent_entry_id")
"""Fields of payload or refs by which a cost names its call: the call's own ``call_id``, or the id of its entry."""

TAG: Final = "memory-nudge"


@dataclass(frozen=True, slots=True)
class CostEntry:
    """An entry of ``COST_TYPES``."""

    entry_id: str
    entry_type: str
    trace_id: str | None
    span_id: str | None
    payload: Mapping[str, Any]
    refs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Spending:
    """The cost of an agent: model calls, tokens, US dollars."""

    calls: int = 0
    tokens: int = 0
    usd: float = 0.0


@dataclass(slots=True)
class _Call:
    usd: float | None = None
    tokens: float | None = None
    booked_usd: float | None = None
    booked_tokens: float | None = None


@dataclass(slots=True)
class _CountedCalls:
    counted: list[_Call] = field(default_factory=list)
    by_name: dict[tuple[str, ...], _Call] = field(default_factory=dict)


def spending(entries: Iterable[CostEntry]) -> Spending:
    """The cost of these entries, with each call counted once.

    A call may be recorded twice, as ``llm.call`` and as ``cost.incurred``. A cost belongs to a call if it names its
    ``call_id`` or its entry, or has its span; then the call's price counts, or the cost's if the call has none. Costs
    that name no call may repeat priced calls that no cost names: only their excess over those calls is added, so the
    sum is never too high.
    """
    listed = list(entries)
    calls = _CountedCalls()
    for entry in listed:
        if entry.entry_type == "llm.call":
            _add_call(calls, entry)
    loose_usd = loose_tokens = 0.0
    loose = 0
    for entry in listed:
        if entry.entry_type != "cost.incurred":
            continue
        usd, tokens = usd_of(entry.payload), tokens_of(entry.payload)
        call = next((calls.by_name[name] for name in _names(entry) if name in calls.by_name), None)
        if call is None:
            loose += 1
            loose_usd += usd or 0.0
            loose_tokens += tokens or 0.0
        else:
            call.booked_usd = (call.booked_usd or 0.0) + (usd or 0.0)
            call.booked_tokens = max(call.booked_tokens or 0.0, tokens or 0.0)
    settled_usd = settled_tokens = open_usd = open_tokens = 0.0
    for call in calls.counted:
        if call.booked_usd is None:
            open_usd += call.usd or 0.0
            open_tokens += call.tokens or 0.0
        else:
            settled_usd += call.usd if call.usd is not None else call.booked_usd
            settled_tokens += call.tokens if call.tokens is not None else call.booked_tokens or 0.0
    return Spending(
        calls=len(calls.counted) or loose,
        tokens=round(settled_tokens + max(open_tokens, loose_tokens)),
        usd=settled_usd + max(open_usd, loose_usd),
    )


def _add_call(calls: _CountedCalls, entry: CostEntry) -> None:
    call_id = _text(entry.payload.get("call_id")) or _text(entry.refs.get("call_id"))
    known = calls.by_name.get(("call", call_id)) if call_id else None
    if known is None:
        known = _Call()
        calls.counted.append(known)
    known.usd = _larger(known.usd, usd_of(entry.payload))
    known.tokens = _larger(known.tokens, tokens_of(entry.payload))
    calls.by_name.setdefault(("call", entry.entry_id), known)
    if call_id:
        calls.by_name[("call", call_id)] = known
    if entry.span_id:
        calls.by_name.setdefault(("span", entry.trace_id or "", entry.span_id), known)


def _names(entry: CostEntry) -> Iterable[tuple[str, ...]]:
    """The keys by which a cost may refer to a call, the most reliable first."""
    for source in (entry.payload, entry.refs):
        for name in CALL_FIELDS:
            if (call_id := _text(source.get(name))) is not None:
                yield ("call", call_id)
    if entry.span_id:
        yield ("span", entry.trace_id or "", entry.span_id)


def usd_of(payload: Mapping[str, Any]) -> float | None:
    """The price in a payload; None if there is no number from 0 to ``MOST``."""
    return next((usd for name in USD_FIELDS if (usd := _number(payload.get(name))) is not None), None)


def tokens_of(payload: Mapping[str, Any]) -> float | None:
    """The number of tokens in a payload; None if absent."""
    for name in TOKEN_FIELDS:
        if (count := _number(payload.get(name))) is not None:
            return count
    for pair in TOKEN_PARTS:
        parts = [count for name in pair if (count := _number(payload.get(name))) is not None]
        if parts:
            return sum(parts)
    return None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if 0 <= number <= MOST else None  # NaN is neither


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _larger(first: float | None, second: float | None) -> float | None:
    if first is None or second is None:
        return second if first is None else first
    return max(first, second)


def memory_nudge(entries: int) -> str | None:
    """The nudge if the agent wrote enough entries since its last update, else None."""
    if entries < MEMORY_THRESHOLD:
        return None
    return marked(
        "memory",
        f"You have {entries:,} new journal entries since your last memory update. Consider summarising what you’ve learned "
        "with summary.generated so future sessions can recall it.",
    )


def cost_nudge(spent: Spending, threshold_usd: float) -> str | None:
    """The nudge if more than the threshold was spent, else None."""
    if not spent.usd > threshold_usd:
        return None
    calls = f"{spent.calls:,} call{'' if spent.calls == 1 else 's'}"
    return marked(
        "cost",
        f"Last 24h: {calls}, {token_text(spent.tokens)} tokens, ${spent.usd:,.2f}. Watch for runaway loops — the "
        "consolidator will summarise this batch on the next tick.",
    )


def marked(kind: NudgeKind, text: str) -> str:
    """A nudge's text in its tag."""
    return f'<{TAG} kind="{kind}">{text}</{TAG}>'


def token_text(tokens: int) -> str:
    """``950``, ``12.5k``, ``3.4M``."""
    for size, unit in ((1_000_000_000, "B"), (1_000_000, "M"), (1_000, "k")):
        if tokens >= size:
            return f"{tokens / size:.1f}{unit}"
    return str(tokens)


# Removes rendered blocks and nudges that a model repeats in its answer, before the answer is recorded.
#
# Otherwise recalled entries would be recorded again as new ones. Invariants: pure and linear; only complete blocks of
# our own form are removed (for memories, with the same nonce in both tags).


NUDGE_CHARS: Final = 600
"""Longest body of a nudge, characters; ours have about 200."""
MAX_LEVELS: Final = 200
"""Number of levels of a payload that are searched; no storable entry is nested deeper."""
EMPTY_SUMMARY: Final = "(nothing but recalled memory)"
"""Replaces a summary that would be empty."""

_NUDGE: Final = re.compile(rf'<{TAG} kind="(?:{"|".join(KINDS)})">[^<]{{0,{NUDGE_CHARS}}}</{TAG}>[ \t]*\n?')
_MEMORY: Final = re.compile(rf'<(/?){MEMORY_TAG} nonce="([0-9a-f]{{16,64}})">')
_MARKS: Final = (f"<{TAG} ", f"<{MEMORY_TAG} ")


def strip_nudges(text: str) -> str:
    """The text without nudges."""
    return _NUDGE.sub("", text) if _MARKS[0] in text else text


def strip_recalled_memory(text: str) -> str:
    """The text without rendered blocks, each from an opening tag to the next closing one with the same nonce."""
    if _MARKS[1] not in text:
        return text
    tags = list(_MEMORY.finditer(text))
    closing: dict[str, list[int]] = {}
    ends: dict[int, int] = {}
    for tag in tags:
        if tag[1]:
            closing.setdefault(tag[2], []).append(tag.start())
            ends[tag.start()] = tag.end()
    kept, at = [], 0
    for tag in tags:
        if tag[1] or tag.start() < at:
            continue
        places = closing.get(tag[2], [])
        place = bisect_left(places, tag.end())
        if place == len(places):
            continue
        kept.append(text[at : tag.start()])
        at = ends[places[place]]
        if text[at : at + 1] == "\n":
            at += 1
    return "".join([*kept, text[at:]])


def strip_injected(text: str) -> str:
    """The text without nudges and without rendered blocks."""
    return strip_nudges(strip_recalled_memory(text)) if "<" in text else text


def strip_record(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """A record with ``strip_injected`` applied to the summary and to every string of the payload.

    Returns:
        ``record`` itself if nothing was removed.
    """
    changes: dict[str, Any] = {}
    summary = record.get("summary")
    if isinstance(summary, str) and (left := strip_injected(summary)) != summary:
        changes["summary"] = left.strip() or EMPTY_SUMMARY
    payload = record.get("payload")
    if isinstance(payload, Mapping) and (rest := _stripped(payload)) is not payload:
        changes["payload"] = rest
    return {**record, **changes} if changes else record


def _stripped(value: Any, levels: int = MAX_LEVELS) -> Any:
    """The value, or a changed copy; strings below ``levels`` levels are not changed."""
    if isinstance(value, str):
        left = strip_injected(value)
        return value if left == value else left
    if levels == 0:
        return value
    if isinstance(value, Mapping):
        items = {name: _stripped(part, levels - 1) for name, part in value.items()}
        return value if all(items[name] is part for name, part in value.items()) else items
    if isinstance(value, list):
        parts = [_stripped(part, levels - 1) for part in value]
        return value if all(new is old for new, old in zip(parts, value, strict=True)) else parts
    return value

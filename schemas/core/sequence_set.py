"""A compact form of sets of sequences and entry ids in events, for example of an erasure.

Invariant: equal sets have equal texts (ranges ascending, disjoint, not adjacent). One value has less than 132 KB of
JSON, so that the entry stays below ``entry.MAX_ENTRY_BYTES``; larger sets are split into parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from .entry import Id

MAX_TEXT: Final = 65_536
"""Maximum length of the ranges of one part, in characters, enough for 5,000 ranges of sequences of six digits."""
MAX_IDS: Final = 1_000
"""Maximum number of ids of one part: at most 67 KB of JSON."""
MAX_SEQUENCE: Final = 2**63 - 1
SHOWN_CHARS: Final = 200
"""Maximum length of the ranges in a message for people, in characters."""

_RANGE: Final = re.compile(r"([1-9][0-9]{0,18})(?:-([1-9][0-9]{0,18}))?", re.ASCII)

Range = tuple[int, int]
"""First and last sequence, both included."""


def normalised(ranges: Iterable[Range]) -> list[Range]:
    """The union of ranges, as ascending ranges that neither overlap nor touch."""
    merged: list[Range] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def ranges_of(sequences: Iterable[int]) -> list[Range]:
    """Ranges that cover the given sequences, which may be unordered and repeated."""
    return normalised((seq, seq) for seq in sequences)


def without(ranges: Iterable[Range], removed: Iterable[Range]) -> list[Range]:
    """The sequences of ``ranges`` that are not in ``removed``; both normalised."""
    kept: list[Range] = []
    cuts = list(removed)
    at = 0
    for first, last in ranges:
        while at < len(cuts) and cuts[at][1] < first:
            at += 1
        for cut_first, cut_last in cuts[at:]:
            if cut_first > last:
                break
            if first < cut_first:
                kept.append((first, cut_first - 1))
            first = max(first, cut_last + 1)
        if first <= last:
            kept.append((first, last))
    return kept


def size_of(ranges: Iterable[Range]) -> int:
    """The number of sequences in the ranges."""
    return sum(last - first + 1 for first, last in ranges)


def format_ranges(ranges: Iterable[Range]) -> str:
    """Normalised ranges as text, ``1-5,9,12-20``."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def parse_ranges(text: str) -> list[Range]:
    """Parse a text written by ``format_ranges``.

    Raises:
        ValueError: If the text is not exactly what ``format_ranges`` writes.
    """
    parsed: list[Range] = []
    for part in text.split(",") if text else ():
        read = _RANGE.fullmatch(part)
        if read is None:
            raise ValueError(f"{part[:40]!r} is not a sequence or a range of sequences")
        first, last = int(read[1]), int(read[2] or read[1])
        if (read[2] is not None and last <= first) or last > MAX_SEQUENCE:
            raise ValueError(f"{part!r} is not an ascending range")
        if parsed and first <= parsed[-1][1] + 1:
            raise ValueError(f"{part!r} overlaps or touches the range before it, or is not in ascending order")
        parsed.append((first, last))
    return parsed


class SequenceSet(BaseModel):
    """Stream sequences and entry ids.

    Attributes:
        sequences: Ascending ranges, ``1-5,9,12-20``.
        ids: Entry ids, ascending, each once.
    """

    model_config = ConfigDict(frozen=True)

    sequences: str = Field(default="", max_length=MAX_TEXT)
    ids: tuple[Id, ...] = Field(default=(), max_length=MAX_IDS)

    @field_validator("sequences")
    @classmethod
    def _in_its_one_form(cls, text: str) -> str:
        parse_ranges(text)
        return text

    @field_validator("ids")
    @classmethod
    def _ascending(cls, ids: tuple[str, ...]) -> tuple[str, ...]:
        if any(entry_id >= next_id for entry_id, next_id in pairwise(ids)):
            raise ValueError("the ids must be unique and ascending")
        return ids

    @property
    def ranges(self) -> list[Range]:
        """The sequences as ranges."""
        return parse_ranges(self.sequences)

    def __contains__(self, seq: int) -> bool:
        return any(first <= seq <= last for first, last in self.ranges)

    def union(self, *others: SequenceSet) -> SequenceSet:
        """The union of sets.

        Raises:
            pydantic.ValidationError: If it is too large for one value.
        """
        all_of_them = (self, *others)
        ranges = normalised(range_ for part in all_of_them for range_ in part.ranges)
        ids = sorted({entry_id for part in all_of_them for entry_id in part.ids})
        return SequenceSet(sequences=format_ranges(ranges), ids=tuple(ids))


def sequences_text(ranges: Iterable[Range]) -> str:
    """Text with the number of sequences and their ranges, cut to ``SHOWN_CHARS``: ``3 sequences (4-6)``."""
    all_ranges = list(ranges)
    text, count = format_ranges(all_ranges), size_of(all_ranges)
    if len(text) > SHOWN_CHARS:
        text = text[:SHOWN_CHARS].rsplit(",", 1)[0] + ",…"
    return f"{count:,} sequence{'s' if count != 1 else ''} ({text})"


def in_parts(
    ranges: Iterable[Range], ids: Iterable[str] = (), *, max_text: int = MAX_TEXT, max_ids: int = MAX_IDS
) -> tuple[SequenceSet, ...]:
    """Split a set into values of bounded size, at least one."""
    texts: list[str] = []
    for piece in (format_ranges([range_]) for range_ in normalised(ranges)):
        if texts and len(texts[-1]) + 1 + len(piece) <= max_text:
            texts[-1] += f",{piece}"
        else:
            texts.append(piece)
    sorted_ids = sorted(set(ids))
    groups = [tuple(sorted_ids[start : start + max_ids]) for start in range(0, len(sorted_ids), max_ids)]
    return tuple(
        SequenceSet(
            sequences=texts[part] if part < len(texts) else "",
            ids=groups[part] if part < len(groups) else (),
        )
        for part in range(max(1, len(texts), len(groups)))
    )


class InParts(BaseModel):
    """Base of an event that holds one part of a set."""

    part: int = Field(default=1, ge=1)
    parts: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _is_one_of_them(self) -> InParts:
        if self.part > self.parts:
            raise ValueError(f"part {self.part} is not one of {self.parts}")
        return self

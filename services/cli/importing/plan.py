"""The plan of an import from another program: what would be written and what is left out, before anything is.

Invariant: the plan and the import read the same submissions in the same way.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ....schemas.limits import REQUEST_BYTES
from ....schemas.rules.embed_policy import REMEMBERED
from ..output import counted, safe, say
from .lines import BATCH_LINES, BadLine, Line, LineBatch, read_line
from .sources.found import IMPORTED, Notes, Record, content_id
from .sources.table import ImportFormat

_SHOWN: Final = 8
"""Crews, agents, types and invalid submissions that a plan names; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What to import, and for whom.

    Attributes:
        name: The format, as ``--from`` names it.
        source: Its reader.
        path: The file or directory.
        agent: The agent of all entries; as the source says if None.
        crew: Likewise the crew.
        promote: Whether statements count as memory at once.
    """

    name: str
    source: ImportFormat
    path: Path
    agent: str | None = None
    crew: str | None = None
    promote: bool = False

    def records(self, notes: Notes) -> Iterator[Record]:
        """Every submission, each with its id."""
        wanted = {name: value for name, value in (("agent_id", self.agent), ("crew_id", self.crew)) if value}
        before: tuple[str | None, str | None] = (None, None)
        for raw in self.source.read(self.path, notes):
            record = {name: value for name, value in raw.items() if value not in (None, "")}
            trace = record.get("trace_id")
            if trace is not None and "ts" not in record and before[0] == trace and before[1] is not None:
                record["ts"] = before[1]  # so that the order of a conversation is kept
            before = (trace, record.get("ts"))
            if self.promote and record["entry_type"] == IMPORTED:
                record["entry_type"] = REMEMBERED
            if any(record.get(name) != value for name, value in wanted.items()):
                record = {name: value for name, value in record.items() if name != "id"} | wanted
                if record.get("actor_type") == "agent":
                    record["actor_id"] = record["agent_id"]
            yield record if record.get("id") else {"id": content_id(record), **record}

    def lines(self, notes: Notes, workspace: str | None) -> Iterator[tuple[int, bytes, Line | BadLine | None]]:
        """(number from 1, bytes, what came of it) of each submission, as of a line of a file."""
        for number, record in enumerate(self.records(notes), 1):
            raw = json.dumps(record, ensure_ascii=False).encode("utf-8", "replace")
            yield number, raw, read_line(number, raw, workspace, notes.place.at)

    def batches(self, notes: Notes, workspace: str | None) -> Iterator[LineBatch]:
        """The submissions in batches as those of a file; the number of a line is that of the submission."""
        batch, size, number = LineBatch(), 0, 0
        for number, raw, read in self.lines(notes, workspace):
            if isinstance(read, Line):
                batch.good.append(read)
            elif read is not None:
                batch.bad.append(read)
            size += len(raw)
            batch.end_offset = batch.end_line = number
            if len(batch.good) + len(batch.bad) >= BATCH_LINES or size >= REQUEST_BYTES:
                yield batch
                batch, size = LineBatch(end_offset=number, end_line=number), 0
        if batch.good or batch.bad:
            yield batch


@dataclass(slots=True)
class Plan:
    """What an import would write, as counts, and the first submissions that are not valid entries."""

    entries: int = 0
    first: str | None = None
    last: str | None = None
    conversations: set[str] = field(default_factory=set)
    types: Counter[str] = field(default_factory=Counter)
    agents: Counter[str] = field(default_factory=Counter)
    crews: Counter[str] = field(default_factory=Counter)
    notes: Notes = field(default_factory=Notes)
    bad: list[BadLine] = field(default_factory=list)

    @classmethod
    def of(cls, selection: Selection, workspace: str | None = None) -> Plan:
        """Read everything once, check it and count."""
        plan = cls()
        for _, _, read in selection.lines(plan.notes, workspace):
            plan.entries += 1
            if not isinstance(read, Line):
                if read is not None and len(plan.bad) < _SHOWN:
                    plan.bad.append(read)
                continue
            record = read.record
            if (at := record.get("ts")) is not None:
                plan.first, plan.last = min(plan.first or at, at), max(plan.last or at, at)
            if trace := record.get("trace_id"):
                plan.conversations.add(trace)
            plan.types[record["entry_type"]] += 1
            plan.agents[record.get("agent_id", "-")] += 1
            plan.crews[record.get("crew_id", "-")] += 1
        return plan

    def as_json(self) -> dict[str, Any]:
        """The counts as a JSON object."""
        return {
            "entries": self.entries,
            "conversations": len(self.conversations),
            "first": self.first,
            "last": self.last,
            **{name: dict(getattr(self, name).most_common()) for name in ("types", "agents", "crews")},
            "left_out": dict(self.notes.left_out.most_common()),
            "without_time": self.notes.untimed,
            "time_without_zone": self.notes.zoneless,
            "cut": self.notes.cut,
        }


def say_plan(plan: Mapping[str, Any], source: str) -> None:
    """The plan for a person, on stderr."""
    say(f"{source}: {counted(plan['entries'], 'entry', 'entries')}, {counted(plan['conversations'], 'conversation')}")
    if plan["first"]:
        say(f"  from       {plan['first'][:16]}Z to {plan['last'][:16]}Z")
    for name in ("types", "agents", "crews"):
        if plan[name].keys() - {"-"}:
            say(f"  {name:<10} {_named(plan[name])}")
    for reason, count in plan["left_out"].items():
        say(f"  left out   {count:,} {safe(reason)}")
    if plan["without_time"]:
        say(
            f"  times      {plan['without_time']:,} have none: that of the message before counts, or that of the import"
        )
    if plan["time_without_zone"]:
        say(f"  times      {plan['time_without_zone']:,} have no zone and are read as UTC")
    if plan["cut"]:
        say(f"  cut        {counted(plan['cut'], 'text')} longer than 128 KiB")


def _named(counts: Mapping[str, int]) -> str:
    shown = [f"{safe(name)} ({count:,})" for name, count in list(counts.items())[:_SHOWN]]
    rest = len(counts) - len(shown)
    return ", ".join(shown) + (f" and {rest:,} more" if rest else "")

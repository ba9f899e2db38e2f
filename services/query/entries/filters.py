"""The filters of list, count and live tail.

Invariant: ``conditions`` (SQL) and ``matches`` (one entry) select the same entries; filters are joined by AND; values
reach DuckDB as parameters only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ....schemas.catalogue import catalogue, info_of
from ....schemas.entry import MAX_NAME, ActorType, JournalEntry, Priority, Severity
from ....schemas.errors import InvalidQuery
from ....schemas.events.memory import MemorySearched
from ....schemas.ids import is_id
from ....schemas.subjects import is_entry_type
from ....schemas.timestamps import parse_ts, to_ms
from .phrase import Phrase
from .visibility import Condition

MAX_VALUES: Final = 200
"""Most values of one filter; each costs a comparison per row."""
_WILDCARD: Final = ".*"
_PLUS_LOST: Final = re.compile(r":[0-9.]+ [0-9]{2}:[0-9]{2}\s*\Z")
"""A time with a blank in place of the offset's sign: an unescaped ``+`` in a URL."""


@dataclass(frozen=True, slots=True)
class EntryFilters:
    """The filters of a query; an empty tuple or None does not filter.

    Attributes:
        run_id: trace_id, actor_id or payload.run_id is this.
        since_ms: At or after, milliseconds since the epoch.
        until_ms: At or before, milliseconds since the epoch.
    """

    crew_ids: tuple[str, ...] = ()
    agent_ids: tuple[str, ...] = ()
    mission_id: str | None = None
    trace_id: str | None = None
    actor_id: str | None = None
    data_subject_id: str | None = None
    run_id: str | None = None
    types: tuple[str, ...] = ()
    exclude_types: tuple[str, ...] = ()
    severities: tuple[str, ...] = ()
    actor_types: tuple[str, ...] = ()
    priorities: tuple[str, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None
    phrase: Phrase | None = None

    def conditions(self, workspace_id: str, *, archive: bool = False) -> list[Condition]:
        """SQL conditions over entries (archived ones too if ``archive``), to be joined by AND.

        ``phrase`` must be verified afterwards; ``priorities`` is about live priorities (``marks``).
        """
        conditions: list[Condition] = []
        for column, values in (
            ("crew_id", self.crew_ids),
            ("agent_id", self.agent_ids),
            ("severity", self.severities),
            ("actor_type", self.actor_types),
        ):
            if values:
                conditions.append(any_of(column, values))
        if self.types:
            conditions.append(_of_types(self.types))
        if self.exclude_types:
            excluded = _of_types(self.exclude_types)
            conditions.append(Condition(f"NOT {excluded.sql}", excluded.params))
        for column, value in (
            ("mission_id", self.mission_id),
            ("trace_id", self.trace_id),
            ("actor_id", self.actor_id),
            ("data_subject_id", self.data_subject_id),
        ):
            if value is not None:
                conditions.append(Condition(f"{column} = ?", (value,)))
        if self.run_id is not None:
            conditions.append(Condition("(trace_id = ? OR actor_id = ? OR run_id = ?)", (self.run_id,) * 3))
        if self.since_ms is not None:
            conditions.append(Condition("ts_ms >= ?", (self.since_ms,)))
        if self.until_ms is not None:
            conditions.append(Condition("ts_ms <= ?", (self.until_ms,)))
        if self.phrase is not None:
            conditions.extend(self.phrase.candidates(workspace_id, archive=archive))
        return conditions

    def matches(self, entry: JournalEntry) -> bool:
        """Whether an entry matches every filter."""
        ts_ms = to_ms(entry.ts)
        return (
            (not self.crew_ids or entry.crew_id in self.crew_ids)
            and (not self.agent_ids or entry.agent_id in self.agent_ids)
            and (not self.types or _is_one_of(entry.entry_type, self.types))
            and not _is_one_of(entry.entry_type, self.exclude_types)
            and (not self.severities or entry.severity in self.severities)
            and (not self.actor_types or entry.actor_type in self.actor_types)
            and (not self.priorities or entry.priority in self.priorities)
            and self.mission_id in (None, entry.mission_id)
            and self.trace_id in (None, entry.trace_id)
            and self.actor_id in (None, entry.actor_id)
            and self.data_subject_id in (None, entry.data_subject_id)
            and (self.run_id is None or self.run_id in (entry.trace_id, entry.actor_id, entry.payload.get("run_id")))
            and (self.since_ms is None or ts_ms >= self.since_ms)
            and (self.until_ms is None or ts_ms <= self.until_ms)
            and (self.phrase is None or self.phrase.matches(ts_ms, entry.summary, entry.payload))
        )


def any_of(column: str, values: Sequence[str]) -> Condition:
    """Condition that ``column`` is one of ``values``."""
    if len(values) == 1:
        return Condition(f"{column} = ?", tuple(values))
    return Condition(f"{column} IN ({', '.join('?' * len(values))})", tuple(values))


def _of_types(types: Sequence[str]) -> Condition:
    """Condition that the type is one of ``types``, in which ``drawer.*`` is any that begins with ``drawer.``."""
    names = [type_ for type_ in types if not type_.endswith(_WILDCARD)]
    begins = [type_.removesuffix("*") for type_ in types if type_.endswith(_WILDCARD)]
    parts = [any_of("entry_type", names).sql] if names else []
    parts += ["starts_with(entry_type, ?)"] * len(begins)
    return Condition(f"({' OR '.join(parts)})", (*names, *begins))


def _is_one_of(entry_type: str, types: Sequence[str]) -> bool:
    return entry_type in types or any(
        pattern.endswith(_WILDCARD) and entry_type.startswith(pattern.removesuffix("*")) for pattern in types
    )


def quiet_condition(types: Sequence[str]) -> Condition | None:
    """Condition that leaves out the catalogue's quiet types, except those in ``types`` (contract §1)."""
    if types:  # every type that can match was requested by name
        return None
    known = catalogue()
    parts: list[str] = []
    params: list[object] = []
    for name, info in known.items():
        if not info.quiet:
            continue
        if not name.endswith(_WILDCARD):
            parts.append("entry_type <> ?")
            params.append(name)
            continue
        prefix = name.removesuffix("*")
        loud = [other for other, its in known.items() if other.startswith(prefix) and other != name and not its.quiet]
        spared = f" OR entry_type IN ({', '.join('?' * len(loud))})" if loud else ""
        parts.append(f"(NOT starts_with(entry_type, ?){spared})")
        params.extend((prefix, *loud))
    return Condition(" AND ".join(parts), tuple(params)) if parts else None


def is_quiet(entry_type: str, types: Sequence[str]) -> bool:
    """Whether the live feed leaves out a type."""
    return not types and info_of(entry_type).quiet


# from query parameters

_LISTS: Final[dict[str, tuple[str, ...]]] = {
    "crew_ids": ("crew_ids",),
    "agent_ids": ("agent_ids",),
    "types": ("types", "entry_type"),
    "exclude_types": ("exclude_types",),
    "severities": ("severities", "severity"),
    "actor_types": ("actor_types", "actor_type"),
    "priorities": ("priorities", "priority"),
}
_CLOSED: Final[dict[str, type[StrEnum]]] = {
    "severities": Severity,
    "actor_types": ActorType,
    "priorities": Priority,
}
_SINGLES: Final = (
    *("crew_id", "agent_id", "mission_id", "trace_id", "actor_id", "data_subject_id", "run_id"),
    *("since", "until", "q"),
)

FILTER_PARAMETERS: Final[dict[str, str]] = {
    "crew_id": "Entries of this crew.",
    "crew_ids": "Entries of any of these crews; wins over crew_id.",
    "agent_id": "Entries of this agent.",
    "agent_ids": "Entries of any of these agents; wins over agent_id.",
    "mission_id": "Entries of this mission.",
    "trace_id": "Entries of this run or session.",
    "actor_id": "Entries of this actor.",
    "data_subject_id": "Entries that hold personal data of this person.",
    "run_id": "Entries whose trace_id, actor_id or payload.run_id is this.",
    "types": "Entries of any of these types; drawer.* is every type that begins with drawer. If absent, all but records of "
    "recalls (memory.searched).",
    "entry_type": "The same as types.",
    "exclude_types": "Entries of none of these types.",
    "severities": "Entries of any of these severities: info, notice, warn, error.",
    "severity": "The same as severities.",
    "actor_types": "Entries of any of these actor types: agent, user, system, keeper, sidecar, orchestrator.",
    "actor_type": "The same as actor_types.",
    "priorities": "Entries whose live priority is any of these: normal, high, pin, permanent.",
    "priority": "The same as priorities.",
    "since": "Entries at or after this RFC 3339 time.",
    "until": "Entries at or before this RFC 3339 time.",
    "q": "Entries with this phrase in the summary or in a string of the payload; at most 200 characters.",
}
"""Every filter parameter with its description, used in OpenAPI."""
LIST_PARAMETERS: Final = frozenset(name for names in _LISTS.values() for name in names)
"""Parameters that may be repeated or hold several values separated by commas."""


def parse_filters(params: Iterable[tuple[str, str]]) -> EntryFilters:
    """Parse the filters among query parameters (name, value); other names are ignored.

    A blank value does not filter.

    Raises:
        InvalidQuery: Names the first parameter that is malformed, not allowed or given twice.
    """
    given: dict[str, list[str]] = {}
    for name, value in params:
        if name in FILTER_PARAMETERS and value.strip():
            given.setdefault(name, []).append(value)
    singles = {name: _single(name, given[name]) for name in _SINGLES if name in given}
    lists = {field: _list(field, names, given) for field, names in _LISTS.items()}
    for field, single in (("crew_ids", "crew_id"), ("agent_ids", "agent_id")):
        if not lists[field] and single in singles:
            lists[field] = (_id(single, singles[single]),)
    if not lists["types"]:  # a journal that is searched often holds more records of recalls than anything else
        lists["exclude_types"] += (MemorySearched.ENTRY_TYPE,)
    return EntryFilters(
        **lists,
        mission_id=_id("mission_id", singles["mission_id"]) if "mission_id" in singles else None,
        trace_id=_id("trace_id", singles["trace_id"]) if "trace_id" in singles else None,
        actor_id=_name("actor_id", singles["actor_id"]) if "actor_id" in singles else None,
        data_subject_id=_name("data_subject_id", singles["data_subject_id"]) if "data_subject_id" in singles else None,
        run_id=_name("run_id", singles["run_id"]) if "run_id" in singles else None,
        since_ms=_bound("since", singles["since"], up=True) if "since" in singles else None,
        until_ms=_bound("until", singles["until"], up=False) if "until" in singles else None,
        phrase=Phrase.parse(singles["q"]) if "q" in singles else None,
    )


def _single(name: str, values: list[str]) -> str:
    if len(values) > 1:
        raise InvalidQuery(f"{name} is given {len(values)} times", hint=_several_hint(name), field=name)
    return values[0]


def _several_hint(name: str) -> str:
    return f"use {name}s for several values" if name in ("crew_id", "agent_id") else "give it only once"


def _list(field: str, names: Sequence[str], given: dict[str, list[str]]) -> tuple[str, ...]:
    shown = next((name for name in names if name in given), field)
    values = [part.strip() for name in names for value in given.get(name, ()) for part in value.split(",")]
    unique = tuple(dict.fromkeys(value for value in values if value))
    if len(unique) > MAX_VALUES:
        raise InvalidQuery(
            f"{shown} has {len(unique)} values, at most {MAX_VALUES} are allowed",
            hint=f"give {shown} fewer values and send several requests",
            field=shown,
        )
    if (closed := _CLOSED.get(field)) is not None:
        allowed = [member.value for member in closed]
        if any(value not in allowed for value in unique):
            raise InvalidQuery(
                f"{shown} holds an unknown value", hint=f"{shown}: use any of {', '.join(allowed)}", field=shown
            )
    elif field in ("types", "exclude_types"):
        if not all(is_entry_type(value.removesuffix(_WILDCARD)) for value in unique):
            raise InvalidQuery(
                f"{shown} contains a value that is not an entry type",
                hint=f"{shown}: one to four lower-case words joined by dots, like run.completed, or run.* for all of a kind",
                field=shown,
            )
    else:
        for value in unique:
            _id(field, value)
    return unique


def _id(name: str, value: str) -> str:
    if not is_id(value):
        raise InvalidQuery(f"{name} is not a valid id", hint=f"{name}: use 1 to 64 of A-Z a-z 0-9 _ -", field=name)
    return value


def _name(name: str, value: str) -> str:
    if len(value) > MAX_NAME:
        raise InvalidQuery(
            f"{name} is longer than {MAX_NAME} characters",
            hint=f"{name}: send at most {MAX_NAME} characters",
            field=name,
        )
    return value


def _bound(name: str, text: str, *, up: bool) -> int:
    try:
        ms = to_ms(parse_ts(text.strip()))  # rounded down to milliseconds
    except ValueError as bad:
        unescaped = "; in a URL write + as %2B" if _PLUS_LOST.search(text) else ""
        raise InvalidQuery(
            f"{name}: {bad}", hint=f"{name}: send a time like 2026-11-21T09:30:00Z{unescaped}", field=name
        ) from None
    _, _, below = text.strip().partition(".")
    digits = below[: len(below) - len(below.lstrip("0123456789"))]
    return ms + 1 if up and digits[3:].strip("0") else ms

"""Selects entries for list, count and live tail: what a token may read, filters, phrase search, cursor.

Invariant: ``conditions`` (SQL) and ``matches`` (one entry) select the same entries; filters are joined by AND; values
reach DuckDB as parameters only.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

import orjson
from Stemmer import Stemmer

from ...schemas.catalogue import catalogue, info_of
from ...schemas.core.entry import MAX_NAME, ActorType, JournalEntry, Priority, Severity
from ...schemas.core.errors import InvalidQuery
from ...schemas.core.ids import hash64, is_id
from ...schemas.core.limits import Q_MAX_CHARS
from ...schemas.core.principal import Principal, Role
from ...schemas.core.subjects import is_entry_type
from ...schemas.core.timestamps import parse_ts, to_ms
from ...schemas.entries.tables import POSTINGS, POSTINGS_TAIL
from ...schemas.lineage.events import MemoryGiven
from ...schemas.recall.events import MemorySearched
from ...schemas.text.analyzer import MAX_TOKENS, Analyzer, fold, indexed_text, strings_in

# Which entries a token may read: one predicate, in SQL for stored rows and in Python for live entries.


@dataclass(frozen=True, slots=True)
class Condition:
    """A part of a WHERE clause and its parameters, in order."""

    sql: str
    params: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Visible:
    """The entries of one workspace that a token may read.

    Attributes:
        workspace_id: The workspace; never ``_system``.
        everything: Whether all entries are readable (OWNER, ADMIN).
        agent_id: The agent whose entries are readable (AGENT, LEAD).
        crew_id: The crew whose entries are readable, too (LEAD).
    """

    workspace_id: str
    everything: bool
    agent_id: str | None = None
    crew_id: str | None = None

    @classmethod
    def to(cls, principal: Principal, workspace: str | None) -> Visible:
        """What ``principal`` may read in the workspace of a request.

        Raises:
            NotAllowed: If the request names another workspace than the token's.
            InvalidQuery: If the name is not valid.
        """
        workspace_id = principal.workspace(workspace)
        if principal.role.administers:
            return cls(workspace_id, everything=True)
        crew = principal.crew_id if principal.role is Role.LEAD else None
        return cls(workspace_id, everything=False, agent_id=principal.agent_id, crew_id=crew)

    def condition(self) -> Condition:
        """The predicate over ``journal_entries``."""
        if self.everything:
            return Condition("workspace_id = ?", (self.workspace_id,))
        if self.crew_id is None:
            return Condition("workspace_id = ? AND agent_id = ?", (self.workspace_id, self.agent_id))
        return Condition(
            "workspace_id = ? AND (agent_id = ? OR crew_id = ?)", (self.workspace_id, self.agent_id, self.crew_id)
        )

    def shows(self, entry: JournalEntry) -> bool:
        """The same predicate for an entry."""
        if entry.workspace_id != self.workspace_id:
            return False
        if self.everything:
            return True
        own = entry.agent_id is not None and entry.agent_id == self.agent_id
        return own or (self.crew_id is not None and entry.crew_id == self.crew_id)


# The phrase search of ``q``: finds candidates through the postings and verifies them by comparing folded text.


_JSON_ESCAPED: Final = frozenset('"\\')

_analyzer_lock = threading.Lock()


class _SharedAnalyzer:
    """One analyser for all phrases, with a lock, because its cache and the stemmer are not thread-safe."""

    analyzer: Analyzer | None = None

    @classmethod
    def phrase_terms(cls, text: str) -> set[int]:
        with _analyzer_lock:
            return set(cls._get().phrase_terms(text))

    @classmethod
    def indexed_terms(cls, text: str) -> set[int]:
        with _analyzer_lock:
            analyzer = cls._get()
            return {*analyzer.terms(text)[:MAX_TOKENS], *analyzer.further_terms(text)[:MAX_TOKENS]}

    @classmethod
    def _get(cls) -> Analyzer:
        if cls.analyzer is None:
            cls.analyzer = Analyzer(Stemmer)
        return cls.analyzer


def _folded(text: str) -> str:
    return " ".join(fold(text).split())


@dataclass(frozen=True)
class Phrase:
    """A phrase to search for.

    Attributes:
        folded: The phrase in NFKC, case-folded, with single blanks.
        terms: Its distinct indexed terms, sorted; empty if it consists of stop words or punctuation.
    """

    folded: str
    terms: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Phrase | None:
        """Parse a ``q`` parameter; None if it is blank.

        Raises:
            InvalidQuery: If it is longer than ``Q_MAX_CHARS`` characters.
        """
        if len(text) > Q_MAX_CHARS:
            raise InvalidQuery(
                f"q has {len(text)} characters, at most {Q_MAX_CHARS} are allowed",
                hint=f"q: send at most {Q_MAX_CHARS} characters",
                field="q",
            )
        folded = _folded(text)
        return cls(folded, tuple(sorted(_SharedAnalyzer.phrase_terms(text)))) if folded else None

    def found_in(self, summary: str, payload: Mapping[str, Any]) -> bool:
        """Whether the summary or one string of the payload contains the folded phrase."""
        return self.folded in _folded(summary) or any(self.folded in _folded(text) for text in strings_in(payload))

    def found_in_row(self, summary: str, payload_json: str) -> bool:
        """``found_in`` for a row of ``journal_entries``."""
        if self.folded in _folded(summary):
            return True
        return '"' in payload_json and self.found_in("", orjson.loads(payload_json))

    def matches(self, ts_ms: int, summary: str, payload: Mapping[str, Any]) -> bool:
        """Whether an entry matches, without an index."""
        if not self.found_in(summary, payload):
            return False
        if not self.terms:
            return True
        return _SharedAnalyzer.indexed_terms(indexed_text(ts_ms, summary, payload)).issuperset(self.terms)

    def candidates(self, workspace_id: str, *, archive: bool = False) -> list[Condition]:
        """Conditions that every matching entry fulfils, the cheapest first.

        Args:
            workspace_id: The workspace.
            archive: Whether archived entries, which have no postings and a ``bucket_id``, are among them.
        """
        conditions = []
        if self.terms:
            marks = ", ".join("?" * len(self.terms))
            where = f"ws = ? AND term IN ({marks})"
            params = (hash64(workspace_id), *self.terms)
            archived = "bucket_id IS NOT NULL OR " if archive else ""
            conditions.append(
                Condition(
                    f"({archived}seq IN (SELECT doc FROM"
                    f" (SELECT doc, term FROM {POSTINGS} WHERE {where} UNION ALL"
                    f" SELECT doc, term FROM {POSTINGS_TAIL} WHERE {where})"
                    " GROUP BY doc HAVING count(DISTINCT term) = ?))",
                    (*params, *params, len(self.terms)),
                )
            )
        if (needle := self._needle) is not None:
            conditions.append(
                Condition(
                    "(contains(lower(summary), ?) OR contains(lower(payload), ?)"
                    " OR strlen(summary) <> length(summary) OR strlen(payload) <> length(payload)"
                    " OR contains(payload, '\\u'))",
                    (needle, needle),
                )
            )
        return conditions

    @cached_property
    def _needle(self) -> str | None:
        """The longest word of the phrase that JSON does not escape; every matching plain-ASCII row contains it."""
        words = [w for w in self.folded.split() if w.isascii() and w.isprintable() and not _JSON_ESCAPED & set(w)]
        return max(words, key=len, default=None)


MAX_VALUES: Final = 200
"""Maximum number of values of a filter; each costs a comparison per row."""
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

        ``phrase`` must be verified afterwards; ``priorities`` is about live priorities (``rows.add_marks``).
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
    "recalls and of texts given for prompts (memory.searched, memory.given).",
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
    if not lists[
        "types"
    ]:  # records of recalls are left out, because a journal that is searched often consists mostly of them
        lists["exclude_types"] += (MemorySearched.ENTRY_TYPE, MemoryGiven.ENTRY_TYPE)
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


# The keyset cursor ``<ts-ms>|<id>`` of a page of entries.


_CURSOR: Final = re.compile(r"(-?[0-9]{1,15})\|([A-Za-z0-9_-]{1,64})\Z", re.ASCII)
"""Digits that suffice for milliseconds of the years 1 to 9999."""


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """Position of the last entry of a page; greater is newer."""

    ts_ms: int
    entry_id: str

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Parse the text of a cursor.

        Raises:
            InvalidQuery: If it is malformed.
        """
        match = _CURSOR.match(text)
        if match is None or not is_id(match[2]):
            raise InvalidQuery(
                "cursor is malformed", hint="pass next_cursor of the previous page unchanged", field="cursor"
            )
        return cls(int(match[1]), match[2])

    def __str__(self) -> str:
        return f"{self.ts_ms}|{self.entry_id}"

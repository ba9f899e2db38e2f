"""What each message of the journal is called, and which other messages it was made of.

An erasure reads the stream once, in order: a message goes if it bears an erased name or was made of one. A message always
comes after those that it was made of, so one pass finds everything.

Invariant: whatever holds text that was taken from another message names that message, directly or by its drawer or fact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ..core.entry import JournalEntry
from ..core.envelope import (
    ChunkVectorDerived,
    DocumentWritten,
    EntryRecorded,
    Event,
    LinkDerived,
    TokenBitsDerived,
    VectorDerived,
)
from ..facts.events import FactAsserted
from ..learning.events import LessonRecorded
from ..palace.events import DrawerFiled, DrawerSuperseded

REFERENCES: Final = ("derived_from", "evidence", "source_entry_ids")
"""Fields of ``refs`` and of payloads that list the ids of the messages a text was made of."""
SOURCES: Final = ("source_entry_id", "skill_of", "proposal_id", "src_entry_id", "dst_entry_id")
"""Fields of payloads that hold one such id."""
ABOUT: Final = ("entry_id", "target_entry_id", "rule_id", "lesson_id")
"""Fields of decisions that name the one thing that the decision is about: it goes with that thing."""
REPLACED: Final = "superseded_by"
"""Field of decisions that names what takes the place of others: they count again if it is erased."""
DRAWERS: Final = ("drawer_id", "source_drawer_id", "drawer_ids", "into", "added")
"""Fields that name drawers by ids that follow from their texts: no message keeps the id of an erased drawer."""
_FIELDS: Final = (
    *((field, field) for field in REFERENCES),
    *((field, "source") for field in SOURCES),
    *((field, "about") for field in ABOUT),
)
VECTOR_OF: Final = "vector_of"
PARENT: Final = "parent_entry_id"
"""Key of ``refs`` of a correction: the entry that it corrects."""
MENTIONS: Final = frozenset(("supersedes", "corrects"))
"""How a message names another one of which it holds no text: an erasure of that one leaves it alone."""


def names_of(event: Event) -> tuple[str, ...]:
    """The names under which other messages refer to this one: ids of entries and writes, ``drawer:…``, ``fact:…``."""
    if isinstance(event, DocumentWritten):
        return (event.write_id,)
    if not isinstance(event, EntryRecorded):
        return ()
    entry = event.entry
    payload = entry.payload
    if event.control:
        if entry.entry_type == DrawerFiled.ENTRY_TYPE:
            return entry.id, named_drawer(payload.get("drawer_id"))
        if entry.entry_type == FactAsserted.ENTRY_TYPE:
            return entry.id, named_fact(payload.get("fact_id"))
        if entry.entry_type == LessonRecorded.ENTRY_TYPE:
            return entry.id, str(payload.get("lesson_id"))
    return (entry.id,)


def sources_of(event: Event) -> Iterator[str]:
    """The names of what this message was made of, or is about alone: what an erasure follows."""
    return (name for name, how in origins_of(event) if how not in MENTIONS)


def origins_of(event: Event) -> Iterator[tuple[str, str]]:
    """The names that this message refers to, each with how: of what it was made, what it is about, what it replaces."""
    if isinstance(event, DocumentWritten):
        yield from ((name, "derived_from") for name in event.derived_from)
    elif isinstance(event, EntryRecorded):
        yield from _of_entry(event)
    elif isinstance(event, LinkDerived):
        yield from ((name, "link") for name in (event.src_entry_id, event.dst_entry_id))
    elif isinstance(event, (VectorDerived, TokenBitsDerived)):
        yield event.entry_id, VECTOR_OF
    elif isinstance(event, ChunkVectorDerived):
        yield event.write_id, VECTOR_OF


def _of_entry(event: EntryRecorded) -> Iterator[tuple[str, str]]:
    entry = event.entry
    if entry.refs:
        for field in REFERENCES:
            yield from _each(entry.refs.get(field), field)
        yield from _each(entry.refs.get(PARENT), "corrects")
    for name in entry.supersedes:
        yield name, "supersedes"
    if event.control:
        yield from _of_payload(entry)


def _of_payload(entry: JournalEntry) -> Iterator[tuple[str, str]]:
    payload = entry.payload
    for field, how in _FIELDS:
        if field in payload:
            yield from _each(payload[field], how)
    of_drawer = entry.entry_type == DrawerSuperseded.ENTRY_TYPE
    yield from _each(map(named_drawer if of_drawer else str, _strings(payload.get(REPLACED))), "about")
    targets = payload.get("targets")
    if isinstance(targets, Mapping) and len(ids := list(_strings(targets.get("ids")))) == 1:
        yield from _each(ids, "about")
    retired = payload.get("retired")
    if isinstance(retired, list) and retired and isinstance(retired[0], Mapping):
        named = {"drawer": named_drawer, "fact": named_fact}.get(str(retired[0].get("kind")), str)
        if len(retired) == 1:
            yield from _each(map(named, _strings(retired[0].get("id"))), "about")
        yield from _each(map(named, _strings(retired[0].get("by"))), "about")
    for stated in payload.get("facts") or ():  # of a person: each with the entry that states it
        if isinstance(stated, Mapping):
            yield from _each(stated.get("entry_id"), "states")
    if entry.entry_type != DrawerFiled.ENTRY_TYPE:
        for field in DRAWERS:
            if field in payload:
                yield from _each(map(named_drawer, _strings(payload[field])), "drawer")
    if entry.entry_type != FactAsserted.ENTRY_TYPE:
        yield from _each(map(named_fact, _strings(payload.get("fact_id"))), "fact")
        if len(fact_ids := list(_strings(payload.get("fact_ids")))) == 1 or "subject" in payload:
            yield from _each(map(named_fact, fact_ids), "fact")


def _each(value: Any, how: str) -> Iterator[tuple[str, str]]:
    return ((name, how) for name in _strings(value))


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        return (value,)
    return (item for item in value if isinstance(item, str)) if isinstance(value, (list, tuple, map)) else ()


def named_drawer(drawer_id: object) -> str:
    """The name of a drawer."""
    return f"drawer:{drawer_id}"


def named_fact(fact_id: object) -> str:
    """The name of a fact."""
    return f"fact:{fact_id}"

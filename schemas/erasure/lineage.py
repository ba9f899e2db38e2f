"""What each message of the journal is called, and which other messages it was made of.

An erasure reads the stream once, in order: a message goes if it bears an erased name or was made of one. A message always
comes after those that it was made of, so one pass finds everything.

Invariant: whatever holds text that was taken from another message names that message, directly or by its drawer or fact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

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
from ..palace.events import DrawerFiled

REFERENCES: Final = ("derived_from", "evidence", "source_entry_ids")
"""Fields of ``refs`` and of payloads that list the ids of the messages a text was made of."""
SOURCES: Final = ("source_entry_id", "skill_of", "proposal_id", "src_entry_id", "dst_entry_id")
"""Fields of payloads that hold one such id."""
ABOUT: Final = ("entry_id", "target_entry_id", "rule_id", "lesson_id")
"""Fields of decisions that name the one thing that the decision is about: it goes with that thing."""


def names_of(event: Event) -> tuple[str, ...]:
    """The names under which other messages refer to this one: ids of entries and writes, ``drawer:…``, ``fact:…``."""
    if isinstance(event, DocumentWritten):
        return (event.write_id,)
    if not isinstance(event, EntryRecorded):
        return ()
    entry = event.entry
    payload = entry.payload
    if event.control:
        made: Mapping[str, str] = {
            DrawerFiled.ENTRY_TYPE: _drawer(payload.get("drawer_id")),
            FactAsserted.ENTRY_TYPE: _fact(payload.get("fact_id")),
            LessonRecorded.ENTRY_TYPE: str(payload.get("lesson_id")),
        }
        if entry.entry_type in made:
            return entry.id, made[entry.entry_type]
    return (entry.id,)


def sources_of(event: Event) -> Iterator[str]:
    """The names of what this message was made of, or is about alone."""
    if isinstance(event, DocumentWritten):
        yield from event.derived_from
    elif isinstance(event, EntryRecorded):
        yield from _of_entry(event)
    elif isinstance(event, LinkDerived):
        yield from (event.src_entry_id, event.dst_entry_id)
    elif isinstance(event, (VectorDerived, TokenBitsDerived)):
        yield event.entry_id
    elif isinstance(event, ChunkVectorDerived):
        yield event.write_id


def _of_entry(event: EntryRecorded) -> Iterator[str]:
    entry = event.entry
    for field in REFERENCES:
        yield from _strings(entry.refs.get(field))
    if not event.control:
        return
    payload = entry.payload
    for field in REFERENCES:
        yield from _strings(payload.get(field))
    for field in (*SOURCES, *ABOUT):
        yield from _strings(payload.get(field))
    targets = payload.get("targets")
    if isinstance(targets, Mapping) and len(ids := list(_strings(targets.get("ids")))) == 1:
        yield from ids
    retired = payload.get("retired")
    if isinstance(retired, list) and len(retired) == 1 and isinstance(retired[0], Mapping):
        named = {"drawer": _drawer, "fact": _fact}.get(str(retired[0].get("kind")), str)
        yield from map(named, _strings(retired[0].get("id")))
    for stated in payload.get("facts") or ():  # of a person: each with the entry that states it
        if isinstance(stated, Mapping):
            yield from _strings(stated.get("entry_id"))
    if entry.entry_type != DrawerFiled.ENTRY_TYPE:
        for field in ("drawer_id", "source_drawer_id"):
            yield from map(_drawer, _strings(payload.get(field)))
        if payload.get("summary"):  # one text made of several drawers
            yield from map(_drawer, (*_strings(payload.get("drawer_ids")), *_strings(payload.get("into"))))
    if entry.entry_type != FactAsserted.ENTRY_TYPE:
        yield from map(_fact, _strings(payload.get("fact_id")))
        if len(fact_ids := list(_strings(payload.get("fact_ids")))) == 1 or "subject" in payload:
            yield from map(_fact, fact_ids)


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        return (value,)
    return (item for item in value if isinstance(item, str)) if isinstance(value, (list, tuple)) else ()


def _drawer(drawer_id: object) -> str:
    return f"drawer:{drawer_id}"


def _fact(fact_id: object) -> str:
    return f"fact:{fact_id}"

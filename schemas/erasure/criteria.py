"""By what an erasure selects messages: the person they are about, their author, or the source they came from.

A request is recorded with a keyed hash of the value, because names and paths are personal data, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from ..core.entry import ActorType
from ..core.envelope import DocumentWritten, EntryRecorded, Event
from ..facts.events import FactAsserted
from ..learning.events import LessonRecorded
from ..operate.events import ToolCalled
from ..palace.events import DrawerFiled
from ..recall.events import MemorySearched

TEXTS: Final = frozenset(kind.ENTRY_TYPE for kind in (DrawerFiled, FactAsserted, LessonRecorded))
"""Control entries that hold a text of their author."""
RUN_RECORDS: Final = frozenset(kind.ENTRY_TYPE for kind in (MemorySearched, ToolCalled))
"""Control entries that hold what their actor asked."""


def subjects_of(event: Event) -> Iterator[str]:
    """The people that a message is about: its ``data_subject_id``, and the person who asked, of a record of a question."""
    if isinstance(event, DocumentWritten):
        yield from _given(event.data_subject_id)
    elif isinstance(event, EntryRecorded):
        entry = event.entry
        yield from _given(entry.data_subject_id)
        if event.control and entry.entry_type in RUN_RECORDS and entry.actor_type is ActorType.USER:
            yield from _given(entry.actor_id)


def authors_of(event: Event) -> Iterator[str]:
    """Who said it: the actor, else the agent; of a drawer also ``added_by``. Decisions of administrators have none here."""
    if isinstance(event, DocumentWritten):
        yield from _given(event.actor_id)
    elif isinstance(event, EntryRecorded) and (not event.control or event.entry.entry_type in TEXTS | RUN_RECORDS):
        entry = event.entry
        yield from _given(entry.actor_id or (entry.agent_id if entry.actor_type is ActorType.AGENT else None))
        if event.control and entry.entry_type == DrawerFiled.ENTRY_TYPE:
            yield from _given(entry.payload.get("added_by"))


def origins_of(event: Event) -> Iterator[str]:
    """Where it came from: ``refs.imported_from``, a drawer's ``imported_from`` and ``source_file``, a write's ``source``."""
    if isinstance(event, DocumentWritten):
        yield event.source
    elif isinstance(event, EntryRecorded):
        yield from _given(event.entry.refs.get("imported_from"))
        if event.control and event.entry.entry_type == DrawerFiled.ENTRY_TYPE:
            yield from _given(event.entry.payload.get("imported_from"))
            yield from _given(event.entry.payload.get("source_file"))


def _given(value: Any) -> Iterator[str]:
    if isinstance(value, str) and value:
        yield value


CRITERIA: Final[Mapping[str, Callable[[Event], Iterator[str]]]] = {
    "subject": subjects_of,
    "author": authors_of,
    "source": origins_of,
}
"""Name of the criterion in a request → the values of a message that are compared with it, exactly."""

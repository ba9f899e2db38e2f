"""Which memories an event ends, and who was given what: pure rules over events.

Invariant: an event that ends memories is listed here, and nowhere else; the fold makes a notice for each run that was given
one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from ..core.entry import JournalEntry
from ..core.envelope import EntryRecorded, Event, LinkDerived
from ..entries.events import ErasureScoped
from ..erasure.lineage import named_drawer, named_fact
from ..facts.events import FactEnded
from ..palace.events import DrawerDeleted, DrawerSuperseded
from ..recall.events import MemorySearched
from ..relations.events import RelationAsserted
from ..relations.rules import CONTRADICTS, SIMILAR, SUPERSEDES
from ..standing.events import RetractionMade, StatementCorrected, TargetKind
from .events import MemoryGiven

VERSION: Final = 1
NEAR_COSINE: Final = 0.9
"""Least cosine of entries that say almost the same: that of duplicates in the palace."""


class Why(StrEnum):
    """How a memory ended."""

    SUPERSEDED = "superseded"
    STALE = "stale"
    RETRACTED = "retracted"
    CONTRADICTED = "contradicted"
    CORRECTED = "corrected"
    ENDED = "ended"
    DELETED = "deleted"
    ERASED = "erased"


REFUTED: Final = frozenset((Why.RETRACTED, Why.CONTRADICTED, Why.CORRECTED))
"""Endings that say that a memory was never true, so that near-duplicates of it are doubtful, too."""


class Ending(NamedTuple):
    """Memories that an event ends; ``by`` replaces or contradicts them."""

    names: tuple[str, ...]
    why: Why
    by: str | None = None


def endings_of(event: Event) -> Iterator[Ending]:
    """The memories that an event ends.

    Whether a relation or ``supersedes`` counts depends on both entries; that is decided when a notice is given.
    """
    if isinstance(event, LinkDerived):
        yield from _of_relation(event.relation, event.src_entry_id, event.dst_entry_id)
    elif isinstance(event, EntryRecorded):
        entry = event.entry
        if entry.supersedes:
            yield Ending(tuple(entry.supersedes), Why.SUPERSEDED, entry.id)
        if event.control and (rule := _ENDINGS.get(entry.entry_type)) is not None:
            yield from rule(entry.payload)


def _of_relation(relation: str, src: str, dst: str) -> Iterator[Ending]:
    if relation == SUPERSEDES:
        yield Ending((dst,), Why.SUPERSEDED, src)
    elif relation == CONTRADICTS:
        yield Ending((dst,), Why.CONTRADICTED, src)
        yield Ending((src,), Why.CONTRADICTED, dst)


def _asserted(payload: Mapping[str, Any]) -> Iterator[Ending]:
    asserted = RelationAsserted.model_validate(payload)
    yield from _of_relation(asserted.relation, asserted.src_entry_id, asserted.dst_entry_id)


def _retracted(payload: Mapping[str, Any]) -> Iterator[Ending]:
    made = RetractionMade.model_validate(payload)
    if made.kind is TargetKind.ENTRY:
        why = Why.SUPERSEDED if made.superseded_by else Why.STALE if made.stale else Why.RETRACTED
        yield Ending(made.targets.ids, why, made.superseded_by)


def _corrected(payload: Mapping[str, Any]) -> Iterator[Ending]:
    for one in StatementCorrected.model_validate(payload).retired:
        named = {"drawer": named_drawer, "fact": named_fact}.get(one.kind, str)
        yield Ending((named(one.id),), Why.CORRECTED, None if one.by is None else named(one.by))


def _ended(payload: Mapping[str, Any]) -> Iterator[Ending]:
    yield Ending(tuple(map(named_fact, FactEnded.model_validate(payload).fact_ids)), Why.ENDED)


def _drawer_superseded(payload: Mapping[str, Any]) -> Iterator[Ending]:
    superseded = DrawerSuperseded.model_validate(payload)
    yield Ending((named_drawer(superseded.drawer_id),), Why.SUPERSEDED, named_drawer(superseded.superseded_by))


def _drawer_deleted(payload: Mapping[str, Any]) -> Iterator[Ending]:
    yield Ending((named_drawer(DrawerDeleted.model_validate(payload).drawer_id),), Why.DELETED)


def _erased(payload: Mapping[str, Any]) -> Iterator[Ending]:
    yield Ending(ErasureScoped.model_validate(payload).scope.ids, Why.ERASED)


_ENDINGS: Final[Mapping[str, Callable[[Mapping[str, Any]], Iterator[Ending]]]] = {
    RelationAsserted.ENTRY_TYPE: _asserted,
    RetractionMade.ENTRY_TYPE: _retracted,
    StatementCorrected.ENTRY_TYPE: _corrected,
    FactEnded.ENTRY_TYPE: _ended,
    DrawerSuperseded.ENTRY_TYPE: _drawer_superseded,
    DrawerDeleted.ENTRY_TYPE: _drawer_deleted,
    ErasureScoped.ENTRY_TYPE: _erased,
}


def is_near(link: LinkDerived) -> bool:
    """Whether a link joins entries that say almost the same."""
    return link.relation == SIMILAR and link.weight >= NEAR_COSINE


def holder_of(agent_id: str | None, token_id: str | None) -> str:
    """Who was given a text: the agent, or the token of a caller without one."""
    return f"agent:{agent_id}" if agent_id is not None else f"token:{token_id}"


class Given(NamedTuple):
    """What a receipt says: who was given which entries and writes, from which state of the views (0 if unknown)."""

    holder: str
    run: str
    entry_ids: tuple[str, ...]
    view_seq: int


def given_by(entry: JournalEntry) -> Given | None:
    """What a receipt says; None if the entry of the service is not a receipt, or nothing was found."""
    if entry.entry_type == MemorySearched.ENTRY_TYPE:
        searched = MemorySearched.model_validate(entry.payload)
        texts = (text.entry_id for text in searched.texts if text.entry_id is not None)
        ids = (*searched.hit_ids, *texts, *searched.held)
        view_seq, asked_by = searched.view_seq or 0, searched.asked_by
    elif entry.entry_type == MemoryGiven.ENTRY_TYPE:
        given = MemoryGiven.model_validate(entry.payload)
        ids = tuple(name for text in given.texts for name in text.entry_ids)
        view_seq, asked_by = given.view_seq, given.asked_by
    else:
        return None
    if not ids:
        return None
    return Given(holder_of(entry.agent_id, asked_by), entry.trace_id or "", tuple(dict.fromkeys(ids)), view_seq)

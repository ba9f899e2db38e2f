"""Which documents of a hot index are current; a load and a commit update it with the same rows.

Invariant: an entry that is not current any more gets the flag ``NOT_CURRENT``, so that scopes exclude it; nothing is
reloaded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeGuard

import numpy as np
import numpy.typing as npt

from ...schemas.core.table import R, Table
from ...schemas.core.timestamps import format_ms, parse_ts, to_ms
from ...schemas.entries.rules import author_of, speaks_for
from ...schemas.relations.rules import CONTRADICTS, SUPERSEDES, RelationState, Sphere
from ...schemas.relations.tables import RELATIONS
from ...schemas.standing.events import TargetKind
from ...schemas.standing.operations import Standing, State
from ...schemas.standing.tables import NO_VALID_MS, RETRACTIONS, SUPERSESSIONS, RetractionRow, SupersessionRow
from .arrays import ABSENT, places_of
from .arrow import present, sequences, values_of
from .columns import HotColumn
from .documents import EntryColumns
from .rows import Rows

# Decides whether an entry counts now, and what it gives way to: one rule for the hot index, ``list`` and ``get``.


class StandingSubject(NamedTuple):
    """An entry as far as its standing depends on it.

    ``holds_ms`` is its ``valid_at``, else its ``ts``; ``author`` is its actor (``schemas/entries/rules``).
    """

    entry_id: str
    seq: int
    agent_id: str | None
    holds_ms: int
    author: str
    sphere: Sphere = Sphere()


class ContradictionEdge(NamedTuple):
    """An edge to another entry; ``seq`` is that of the event that made it what it is."""

    other: StandingSubject
    state: str
    reason: str
    seq: int


class Replacement(NamedTuple):
    """An edge ``supersedes`` from a newer entry; ``seq`` is that of the event that made it what it is.

    ``from_ms`` is the time from which the newer entry holds.
    """

    other: StandingSubject
    state: str
    reason: str
    from_ms: int
    seq: int


@dataclass(slots=True)
class StandingFacts:
    """The recorded decisions about entries of one workspace, by the id of the entry."""

    retractions: dict[str, RetractionRow] = field(default_factory=dict)
    supersessions: dict[str, dict[str, SupersessionRow]] = field(default_factory=dict)
    contradictions: dict[str, dict[str, ContradictionEdge]] = field(default_factory=dict)
    replacements: dict[str, dict[str, Replacement]] = field(default_factory=dict)
    replaced: dict[str, set[str]] = field(default_factory=dict)
    """Entry → the entries that it may supersede."""

    def retract(self, row: RetractionRow) -> None:
        """Take in a retraction, open or ended, unless a later state is known."""
        known = self.retractions.get(row.target_id)
        if row.kind == TargetKind.ENTRY and (known is None or _age(known) < _age(row)):
            self.retractions[row.target_id] = row

    def supersede(self, row: SupersessionRow) -> None:
        """Take in a supersession."""
        self.supersessions.setdefault(row.target_id, {})[row.by_id] = row
        self.replaced.setdefault(row.by_id, set()).add(row.target_id)

    def replace(self, older: StandingSubject, edge: Replacement) -> None:
        """Take in an edge ``supersedes``, unless a later state of it is known."""
        known = self.replacements.get(older.entry_id, {}).get(edge.other.entry_id)
        if known is None or known.seq < edge.seq:
            self.replacements.setdefault(older.entry_id, {})[edge.other.entry_id] = edge
            self.replaced.setdefault(edge.other.entry_id, set()).add(older.entry_id)

    def contradict(self, subject: StandingSubject, other: StandingSubject, state: str, reason: str, seq: int) -> None:
        """Take in an edge ``contradicts``, unless a later state of it is known."""
        known = self.contradictions.get(subject.entry_id, {}).get(other.entry_id)
        if known is None or known.seq < seq:
            for here, there in ((subject, other), (other, subject)):
                edge = ContradictionEdge(there, state, reason, seq)
                self.contradictions.setdefault(here.entry_id, {})[there.entry_id] = edge

    def retracted(self, entry_id: str) -> bool:
        """Whether an entry is retracted now."""
        known = self.retractions.get(entry_id)
        return known is not None and known.until_seq is None

    def standing(self, subject: StandingSubject) -> Standing | None:
        """Why an entry does not count as it is; None if it counts."""
        if self.retracted(subject.entry_id):
            row = self.retractions[subject.entry_id]
            state = State.SUPERSEDED if row.superseded_by else State.STALE if row.stale else State.RETRACTED
            return Standing(
                state=state, by=row.superseded_by or row.actor_id, at=format_ms(row.made_ms), reason=row.reason
            )
        by = [
            row
            for row in self.supersessions.get(subject.entry_id, {}).values()
            if supersedes(row, subject) and not self.retracted(row.by_id)
        ]
        if by:
            last = max(by, key=lambda row: row.by_seq)
            return Standing(state=State.SUPERSEDED, by=last.by_id, at=format_ms(last.by_ms), reason="")
        return self._replaced(subject) or self._contradicted(subject)

    def _replaced(self, subject: StandingSubject) -> Standing | None:
        """By the first entry that retires it: a later one retires what that entry says."""
        edges = [
            edge
            for edge in self.replacements.get(subject.entry_id, {}).values()
            if replaces(subject, edge) and not self.retracted(edge.other.entry_id)
        ]
        if not edges:
            return None
        first = min(edges, key=lambda edge: (edge.from_ms, edge.other.seq))
        return Standing(
            state=State.SUPERSEDED, by=first.other.entry_id, at=format_ms(first.from_ms), reason=first.reason
        )

    def _contradicted(self, subject: StandingSubject) -> Standing | None:
        later = [
            edge
            for edge in self.contradictions.get(subject.entry_id, {}).values()
            if edge.state != RelationState.RETRACTED
            and (edge.state == RelationState.ASSERTED or subject.sphere.meets(edge.other.sphere))
            and (edge.other.holds_ms, edge.other.seq) > (subject.holds_ms, subject.seq)
            and not self.retracted(edge.other.entry_id)
        ]
        if not later:
            return None
        edge = max(later, key=lambda edge: (_counts(subject, edge), edge.other.holds_ms))
        state = State.CONTRADICTED if _counts(subject, edge) else State.DISPUTED
        if subject.agent_id is None or subject.agent_id != edge.other.agent_id:
            # what another agent says may not be visible to the caller
            by = edge.other.entry_id if state is State.CONTRADICTED and edge.other.agent_id is None else None
            return Standing(state=state, by=by, at=format_ms(edge.other.holds_ms), reason="")
        return Standing(state=state, by=edge.other.entry_id, at=format_ms(edge.other.holds_ms), reason=edge.reason)


def supersedes(row: SupersessionRow, subject: StandingSubject) -> bool:
    """Whether ``supersedes`` of a later entry counts for an entry."""
    if row.by_seq <= subject.seq or row.by_agent not in (None, subject.agent_id):
        return False
    return row.by_operator or row.by_actor == subject.author


def replaces(subject: StandingSubject, edge: Replacement) -> bool:
    """Whether an edge ``supersedes`` counts for the older entry."""
    if edge.state == RelationState.RETRACTED:
        return False
    if edge.state == RelationState.ASSERTED:
        return True
    if not speaks_for(edge.other.agent_id, subject.agent_id) or not subject.sphere.meets(edge.other.sphere):
        return False
    return (edge.from_ms, edge.other.seq) > (subject.holds_ms, subject.seq)


def _counts(subject: StandingSubject, edge: ContradictionEdge) -> bool:
    return edge.state == RelationState.ASSERTED or (
        subject.agent_id is not None and speaks_for(edge.other.agent_id, subject.agent_id)
    )


def _age(row: RetractionRow) -> tuple[int, bool]:
    return row.since_seq, row.until_seq is not None


class Standings:
    """The recorded standing of documents.

    Args:
        documents: The documents.
        valid_ms: Hot column with ``valid_at`` of those that have it.
    """

    def __init__(self, documents: EntryColumns, valid_ms: HotColumn) -> None:
        self._documents = documents
        self._valid_ms = valid_ms
        self._facts = StandingFacts()
        self._names: dict[str, list[str]] = {}

    def take(self, rows: Rows, seqs: npt.NDArray[np.int64]) -> set[str]:
        """Take in rows; the ids of entries whose standing may have changed.

        Args:
            rows: The rows.
            seqs: (n,) int64 stream sequences of the documents, ascending.
        """
        changed: set[str] = set()
        for superseded in _each(rows, SUPERSESSIONS, "by_seq"):
            self._facts.supersede(superseded)
            changed.add(superseded.target_id)
        changed |= self._contradictions(rows, seqs) | self._replacements(rows, seqs)
        retracted: set[str] = set()
        for row in _each(rows, RETRACTIONS, "since_seq"):
            self._facts.retract(row)
            retracted.add(row.target_id)
        return changed | retracted | self._depending_on(retracted)

    def _depending_on(self, entry_ids: set[str]) -> set[str]:
        """The entries that one of these supersedes or contradicts."""
        if not entry_ids:
            return set()
        facts = (self._facts.supersessions, self._facts.contradictions, self._facts.replacements)
        return {target for known in facts for target, by in known.items() if not entry_ids.isdisjoint(by)}

    def _contradictions(self, rows: Rows, seqs: npt.NDArray[np.int64]) -> set[str]:
        table = rows.of(RELATIONS, "src_seq", "dst_seq", "state", "reason", "seq", relation=CONTRADICTS)
        if table is None:
            return set()
        table = present(present(table, "src_seq"), "dst_seq")  # an end may be unknown
        ends = [places_of(seqs, sequences(table, name)).tolist() for name in ("src_seq", "dst_seq")]
        details = (values_of(table, name) for name in ("state", "reason", "seq"))
        changed: set[str] = set()
        for src, dst, state, reason, seq in zip(*ends, *details, strict=True):
            if ABSENT not in (src, dst):
                source, target = self._subject(src), self._subject(dst)
                self._facts.contradict(source, target, state, reason, seq)
                changed |= {source.entry_id, target.entry_id}
        return changed

    def _replacements(self, rows: Rows, seqs: npt.NDArray[np.int64]) -> set[str]:
        table = rows.of(RELATIONS, "src_seq", "dst_seq", "state", "reason", "since_ms", "seq", relation=SUPERSEDES)
        if table is None:
            return set()
        table = present(present(table, "src_seq"), "dst_seq")  # an end may be unknown
        ends = [places_of(seqs, sequences(table, name)).tolist() for name in ("src_seq", "dst_seq")]
        details = (values_of(table, name) for name in ("state", "reason", "since_ms", "seq"))
        changed: set[str] = set()
        for src, dst, state, reason, since_ms, seq in zip(*ends, *details, strict=True):
            if ABSENT not in (src, dst):
                newer, older = self._subject(src), self._subject(dst)
                from_ms = newer.holds_ms if since_ms is None else max(since_ms, newer.holds_ms)
                self._facts.replace(older, Replacement(newer, state, reason, from_ms, seq))
                changed.add(older.entry_id)
        return changed

    def _subject(self, doc: int) -> StandingSubject:
        documents = self._documents
        valid_ms = int(self._valid_ms.rows[doc])
        return StandingSubject(
            documents.id_of(doc),
            int(documents.seq[doc]),
            self._name("agent_id", doc),
            int(documents.ts_ms[doc]) if valid_ms == NO_VALID_MS else valid_ms,
            author_of(self._name("actor_type", doc) or "", self._name("actor_id", doc)),
            Sphere(*(self._name(column, doc) for column in Sphere._fields)),
        )

    def _name(self, column: str, doc: int) -> str | None:
        held = self._documents.entries.columns[column]
        code = int(held.rows[doc])
        if code == ABSENT:
            return None
        if code >= len(self._names.get(column, ())):
            self._names[column] = held.names.names()
        return self._names[column][code]

    def of(self, doc: int) -> Standing | None:
        """Why a document does not count as it is; None if it counts."""
        facts = self._facts
        if not (facts.retractions or facts.supersessions or facts.contradictions or facts.replacements):
            return None
        return facts.standing(self._subject(doc))

    def leaves_out(self, doc: int) -> bool:
        """Whether a document never counts.

        A disputed one does, and a superseded one did until another entry replaced it, to which it leads (``holder``).
        """
        standing = self.of(doc)
        if standing is None or standing.state is State.DISPUTED:
            return False
        return not (standing.state is State.SUPERSEDED and self._doc_of(standing.by) != ABSENT)

    def holder(self, doc: int, moment_ms: int) -> int:
        """The document that holds at a time in the place of another; that document itself if it holds then.

        Args:
            doc: The document.
            moment_ms: Milliseconds since 1970-01-01.
        """
        if not (self._facts.supersessions or self._facts.replacements or self._facts.retractions):
            return doc
        seen: set[int] = set()
        while doc not in seen:
            seen.add(doc)
            standing = self.of(doc)
            if _superseded(standing) and _at(standing) <= moment_ms:
                following = self._doc_of(standing.by)
            else:
                following = self._before(doc, moment_ms)
            if following == ABSENT:
                return doc
            doc = following
        return doc

    def _before(self, doc: int, moment_ms: int) -> int:
        """What a document that replaces something only later replaces, ``ABSENT`` if it holds at that time."""
        entry_id = self._documents.id_of(doc)
        for target in sorted(self._facts.replaced.get(entry_id, ())):
            older = self._doc_of(target)
            if older != ABSENT:
                standing = self.of(older)
                if _superseded(standing) and standing.by == entry_id and _at(standing) > moment_ms:
                    return older
        return ABSENT

    def _doc_of(self, entry_id: str | None) -> int:
        return ABSENT if entry_id is None else int(self._documents.find_ids([entry_id])[0])


def _superseded(standing: Standing | None) -> TypeGuard[Standing]:
    return standing is not None and standing.state is State.SUPERSEDED


def _at(standing: Standing) -> int:
    return to_ms(parse_ts(standing.at))


def _each(rows: Rows, table: Table[R], order: str) -> list[R]:
    arrow = rows.of(table, *table.row._fields, order=order)  # type: ignore[attr-defined]  # a NamedTuple
    if arrow is None:
        return []
    columns = [values_of(arrow, name) for name in table.row._fields]  # type: ignore[attr-defined]  # a NamedTuple
    return [table.row(*row) for row in zip(*columns, strict=True)]

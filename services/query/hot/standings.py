"""Which documents of a hot index are current; a load and a commit update it with the same rows.

Invariant: an entry that is not current any more gets the flag ``NOT_CURRENT``, so that scopes exclude it; nothing is
reloaded.
"""

from __future__ import annotations

from typing import TypeGuard

import numpy as np
import numpy.typing as npt

from ....schemas.operations.retractions import Standing, State
from ....schemas.rules.actors import author_of
from ....schemas.rules.relations import CONTRADICTS, SUPERSEDES
from ....schemas.rules.spheres import Sphere
from ....schemas.timestamps import parse_ts, to_ms
from ....schemas.views import NO_VALID_MS, RELATIONS, RETRACTIONS, SUPERSESSIONS
from ....schemas.views.table import R, Table
from ..standing import Replacement, StandingFacts, StandingSubject
from .arrow import present, sequences, values_of
from .columns import HotColumn
from .documents import EntryColumns
from .rows import Rows
from .vocabulary import ABSENT, places_of


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

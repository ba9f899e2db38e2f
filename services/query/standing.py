"""Decides whether an entry counts now, and what it gives way to: one rule for the hot index, ``list`` and ``get``.

Who may do so: an entry supersedes earlier entries of its own agent that have the same actor, so that an agent replaces
neither what another agent wrote nor what a keeper decided about it. An entry by an OWNER or ADMIN supersedes every entry of
the agent that it names, or of the workspace if it names none. A LEAD retracts entries of its crew, naming what replaces
them. A retracted entry supersedes and contradicts nothing.

What a reactor takes for an update (``supersedes`` in ``memory_relations``) counts between entries of one agent and sphere
(``rules/spheres``), from the time from which the newer one holds. One that an OWNER, ADMIN or LEAD asserted counts for every
entry.

Of two contradicting entries, the one with the later ``valid_at`` (``ts`` if absent) counts. A contradiction that only a
reactor proposes counts between entries of one agent and sphere; between agents it is a dispute, which leaves nothing out,
and between spheres it is nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ...schemas.events.retractions import TargetKind
from ...schemas.operations.retractions import Standing, State
from ...schemas.rules.relations import RelationState
from ...schemas.rules.spheres import Sphere
from ...schemas.timestamps import format_ms
from ...schemas.views import RetractionRow, SupersessionRow


class StandingSubject(NamedTuple):
    """An entry as far as its standing depends on it.

    ``holds_ms`` is its ``valid_at``, else its ``ts``; ``author`` is its actor (``rules/actors``).
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
        if (
            subject.agent_id is None or subject.agent_id != edge.other.agent_id
        ):  # its entry may not be visible to the caller
            return Standing(state=state, by=None, at=format_ms(edge.other.holds_ms), reason="")
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
    if subject.agent_id != edge.other.agent_id or not subject.sphere.meets(edge.other.sphere):
        return False
    return (edge.from_ms, edge.other.seq) > (subject.holds_ms, subject.seq)


def _counts(subject: StandingSubject, edge: ContradictionEdge) -> bool:
    return edge.state == RelationState.ASSERTED or (
        subject.agent_id is not None and subject.agent_id == edge.other.agent_id
    )


def _age(row: RetractionRow) -> tuple[int, bool]:
    return row.since_seq, row.until_seq is not None

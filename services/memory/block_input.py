"""The sections of a memory block, from an agent's documents and registration.

Invariant: pure; a document that does not count makes no section.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Final

from ...schemas.principal import Role
from ...schemas.recorded_settings import AgentRole
from ...schemas.rules.assembler import Section
from ...schemas.rules.lessons import (
    OUTCOMES_LABEL,
    RULES_LABEL,
    outcomes_text,
    rules_text,
)
from ...schemas.rules.memory_block import WINDOW_DAYS, BlockInput, Daily
from ...schemas.rules.remembered import NoteLines
from ...schemas.rules.tiers import TIERS, key_problem
from ...schemas.views.workspaces import AgentRow
from ..desk import Caller
from .documents.owned import OwnedDocuments
from .profiles import Opener
from .prompt_learning import CrewLearning

_TOPICS: Final = TIERS["topics"].label.partition("{key}")[0]


@dataclass(frozen=True, slots=True)
class BlockState:
    """The parts of a block: day, registrations, documents, what was learned and remembered, who opened the session."""

    today: date
    agent: AgentRow | None
    members: frozenset[AgentRow]
    own: OwnedDocuments
    crew: OwnedDocuments
    workspace: OwnedDocuments
    learned: CrewLearning = field(default_factory=CrewLearning)
    opener: Opener | None = None
    notes: NoteLines = field(default_factory=lambda: NoteLines(""))

    @property
    def leads(self) -> frozenset[str]:
        """The members who lead the crew."""
        return frozenset(row.agent_id for row in self.members if row.role == AgentRole.LEAD)


def block_input(
    caller: Caller,
    state: BlockState,
    agent_id: str | None,
    crew_id: str | None,
) -> BlockInput:
    """The sections of a block from the documents.

    Args:
        caller: The caller; the block of a LEAD says how to write for the crew.
        state: The documents.
        agent_id: The agent, if there is one.
        crew_id: Its crew, if there is one.
    """
    day = state.today.isoformat()
    is_alone = {row.agent_id for row in state.members} == {agent_id}
    is_member = crew_id is not None and not is_alone
    is_lead = caller.principal.role is Role.LEAD or (state.agent is not None and state.agent.role == AgentRole.LEAD)
    crew = state.crew if is_member else OwnedDocuments()
    pins = (
        _section(state.own, "pins"),
        _section(state.crew, "pins", label="pins.md of the crew (pinned by operators)"),
        _section(state.workspace, "pins", label="pins.md of the workspace (pinned by operators)"),
    )
    persona = _section(state.own, "PERSONA") or _section(state.crew, "PERSONA")
    if persona is None and agent_id is not None:
        name = state.agent.name if state.agent is not None else None
        of_crew = f" of crew {crew_id}" if crew_id is not None else ""
        role = "the lead" if is_lead else "an agent"
        persona = Section("PERSONA.md", "PERSONA.md", f"You are {name or agent_id}, {role}{of_crew}.")
    return BlockInput(
        agent=_section(state.own, "AGENT"),
        prior=_prior(state.own, state.today),
        of_today=_section(state.own, "daily", day, label=f"Daily log: {day} (today)"),
        crew=tuple(_crew_sections(crew, day, _learned(state, agent_id, is_lead))),
        workspace=_section(state.workspace, "WORKSPACE"),
        pins=tuple(section for section in pins if section is not None),
        remembered=_remembered(state.notes),
        persona=persona,
        operator=_operator(state.opener),
        peer=_peer(state.own, state.opener),
        is_lead=is_lead and is_member,
        has_crew=is_member,
    )


def _section(
    owned: OwnedDocuments,
    tier: str,
    key: str | None = None,
    *,
    label: str | None = None,
) -> Section | None:
    document = owned.get(tier, key)
    if document is None:
        return None
    rule = TIERS[tier]
    return Section(
        rule.label_of(key), label or rule.title.format(key=key), document.content, document.finding, scanned=True
    )


def _prior(owned: OwnedDocuments, today: date) -> Daily | None:
    """The newest log before today, with its text if it is within the window."""
    days = [key for key in owned.keys("daily") if key < today.isoformat() and key_problem(TIERS["daily"], key) is None]
    newest = days[-1] if days else owned.last_day
    if newest is None:
        return None
    days_ago = (today - date.fromisoformat(newest)).days
    return Daily(newest, days_ago, _section(owned, "daily", newest) if days_ago <= WINDOW_DAYS else None)


def ranked(section: Section, relevance: Mapping[str, float]) -> Section:
    """A section of the crew, with the relevance of its label if it is a topic."""
    is_topic = section.name.startswith(_TOPICS)
    return replace(section, relevance=relevance.get(section.name, 0.0)) if is_topic else section


def _learned(state: BlockState, agent_id: str | None, is_lead: bool) -> tuple[Section, ...]:
    """Learned rules for the agent, and for a lead the outcomes of missions; blank sections are left out by the assembler.

    Their lines are scanned one by one, so that a line of one author does not hide those of others.
    """
    rules = Section("rules", RULES_LABEL, rules_text(state.learned.rules_for(agent_id)), scanned=True)
    outcomes = Section("outcomes", OUTCOMES_LABEL, outcomes_text(state.learned.outcomes), scanned=True)
    return (rules, outcomes) if is_lead else (rules,)


def _crew_sections(crew: OwnedDocuments, day: str, learned: Sequence[Section]) -> Iterator[Section]:
    """CREW.md, the crew's log of today, what the crew learned, topics by name."""
    topics = (_section(crew, "topics", key) for key in crew.keys("topics"))
    log = _section(crew, "daily", day, label=f"Daily log: {day} (today)")
    sections = (_section(crew, "CREW"), log, *learned, *topics)
    yield from (section for section in sections if section is not None and (section.body or section.finding))


def _remembered(notes: NoteLines) -> Section | None:
    """The notes; their lines are scanned one by one, and by the assembler together."""
    return Section("remembered", "Remembered notes", notes.text) if notes.text else None


NOTES_OF_AGENT: Final = "Notes of the agent, not statements of the person:\n"
"""Between the facts that a person stated to an agent and what the agent wrote about the person."""


def _operator(opener: Opener | None) -> Section | None:
    """The model of the person who opened the session."""
    if opener is None or not opener.model:
        return None
    label = TIERS["users"].label_of(opener.slug)
    return Section(label, label, opener.model)


def _peer(owned: OwnedDocuments, opener: Opener | None) -> Section | None:
    """The agent's card of the person, and what it wrote itself under the slug or the person's own name."""
    if opener is None or opener.opted_out:
        return None
    notes = _section(owned, "peers", opener.slug) or _section(owned, "peers", opener.user)
    if not opener.card:
        return notes
    label = TIERS["peers"].label_of(opener.slug)
    if notes is None or notes.finding:
        return Section(label, label, opener.card)
    return replace(notes, body=f"{opener.card}{NOTES_OF_AGENT}{notes.body}", scanned=False)

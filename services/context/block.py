"""The use-case that builds the memory block of an agent's prompt (contract §15).

Invariant: AGENT and LEAD get the block of their own agent, their own crew and the workspace; an agent whose memory is off
gets none; blocked text reaches no prompt of any caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Any, Final, NamedTuple, Protocol

from ...schemas.access.tables import WORKSPACE_SETTINGS, AgentRow, read_workspace_settings
from ...schemas.context.memory_block import (
    BUDGET_DEFAULT,
    REMEMBERED_FRAME_TOKENS,
    TOKENS_DEFAULT,
    WINDOW_DAYS,
    BlockInput,
    Daily,
    Note,
    NoteLines,
    build_memory_block,
    crew_may_overflow,
    notes_text,
)
from ...schemas.context.operations import MEMORY_BLOCK, MemoryBlockAnswer, MemoryBlockRequest
from ...schemas.core.errors import InvalidQuery
from ...schemas.core.ports import CommittedBatch, ViewReader
from ...schemas.core.principal import Role
from ...schemas.core.recorded_settings import AgentRole
from ...schemas.core.timestamps import day_of
from ...schemas.documents.rules import TIERS, Scope, key_problem, owner_of, tier_of_label
from ...schemas.documents.tables import DOCUMENTS_PROJECTION
from ...schemas.entries.tables import ENTRIES
from ...schemas.learning.lessons import (
    LESSONS_LABEL,
    OUTCOMES_LABEL,
    RULES_LABEL,
    Lesson,
    lessons_text,
    outcomes_text,
    rules_text,
)
from ...schemas.lineage.events import MOST_HELD, HeldText, MemoryGiven
from ...schemas.models.rules import REMEMBERED
from ...schemas.prompt.assembler import Section, SectionState
from ...schemas.relations.rules import SIMILAR
from ...schemas.relations.tables import RELATIONS
from ...schemas.standing.operations import State
from ...schemas.standing.tables import IMPORTANCE, RETRACTIONS, SUPERSESSIONS
from ..desk import Caller
from ..documents.addressing import SearchedOwners, check_own
from ..documents.learned import CrewLearning, Opener, PromptLearning
from ..documents.owned import OwnedDocuments
from ..documents.search import DocumentSearch, RecordSearch, no_record
from ..entries.rows import JOURNAL_SOURCE, SELECT_LIST, StoredEntry, add_marks
from ..kept import KeptValues, changes_of, in_thread
from ..registry import Registry

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
    lessons: tuple[Lesson, ...] = ()
    opener: Opener | None = None
    notes: NoteLines = field(default_factory=lambda: NoteLines(""))

    @property
    def leads(self) -> frozenset[str]:
        """The members who lead the crew."""
        return frozenset(row.agent_id for row in self.members if row.role == AgentRole.LEAD)


def block_input(caller: Caller, state: BlockState, agent_id: str | None, crew_id: str | None) -> BlockInput:
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
        _section(state.crew, "pins", label=_OF_CREW),
        _section(state.workspace, "pins", label=_OF_WORKSPACE),
    )
    crew_sections = (
        _section(crew, "CREW"),
        _section(crew, "daily", day, label=(today_label := f"Daily log: {day} (today)")),
        *_learned(state, agent_id, is_lead),
        *(_section(crew, "topics", key) for key in crew.keys("topics")),
    )
    notes, model = state.notes.text, "" if state.opener is None else state.opener.model
    users = "" if state.opener is None else TIERS["users"].label_of(state.opener.slug)
    persona = _section(state.own, "PERSONA") or _section(state.crew, "PERSONA")
    if persona is None and agent_id is not None:
        name = state.agent.name if state.agent is not None else None
        of_crew = f" of crew {crew_id}" if crew_id is not None else ""
        role = "the lead" if is_lead else "an agent"
        persona = Section("PERSONA.md", "PERSONA.md", f"You are {name or agent_id}, {role}{of_crew}.")
    return BlockInput(
        agent=_section(state.own, "AGENT"),
        prior=_prior(state.own, state.today),
        of_today=_section(state.own, "daily", day, label=today_label),
        crew=tuple(section for section in crew_sections if section is not None and (section.body or section.finding)),
        workspace=_section(state.workspace, "WORKSPACE"),
        pins=tuple(section for section in pins if section is not None),
        remembered=Section("remembered", "Remembered notes", notes)
        if notes
        else None,  # scanned line by line, and whole
        persona=persona,
        operator=Section(users, users, model) if model else None,
        peer=_peer(state.own, state.opener),
        is_lead=is_lead and is_member,
        has_crew=is_member,
    )


PROMPT: Final = "memory_block"
"""Names a block in ``memory.given``."""
_OF_CREW, _OF_WORKSPACE = "pins.md of the crew (pinned by operators)", "pins.md of the workspace (pinned by operators)"


def held_texts(
    state: BlockState, sections: Sequence[SectionState], agent_id: str | None, crew_id: str | None
) -> tuple[HeldText, ...]:
    """The texts that are in a block: its documents, rules, outcomes, notes, and what is known about the person."""
    own, crew, workspace = _owners(agent_id, crew_id)
    has_persona = state.own.get("PERSONA") is not None
    owners = {"agent": own, "crew": crew, "workspace": workspace, "persona": own if has_persona else crew, "peer": own}
    pins = {_OF_CREW: crew, _OF_WORKSPACE: workspace}
    held: list[HeldText] = []
    for section in sections:
        if not section.chars or section.blocked:
            continue
        if section.name == "rules":
            rules = (rule.rule_id for rule in state.learned.rules_for(agent_id) if rule.finding is None)
            held += (HeldText(kind="rule", id=rule_id, entry_ids=(rule_id,)) for rule_id in rules)
        elif section.name == "outcomes":
            outcomes = (item for item in state.learned.outcomes if item.finding is None)
            held += (HeldText(kind="lesson", id=item.lesson_id, entry_ids=(item.entry_id,)) for item in outcomes)
        elif section.name == "remembered":
            held += (HeldText(kind="entry", id=entry_id, entry_ids=(entry_id,)) for entry_id in state.notes.entry_ids)
        elif section.block in ("operator", "peer") and state.opener is not None:
            held.append(HeldText(kind="person", id=state.opener.slug, entry_ids=state.opener.entry_ids[:MOST_HELD]))
        owner = owners.get(section.block) if section.block != "pins" else pins.get(section.label, own)
        if owner is not None and tier_of_label(section.name) is not None:
            held.append(HeldText(kind="document", id=f"{owner}/{section.name}"))
    return tuple(held[:MOST_HELD])


def _section(owned: OwnedDocuments, tier: str, key: str | None = None, *, label: str | None = None) -> Section | None:
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
    """Lessons and learned rules for the agent, and for a lead the outcomes of missions; the assembler leaves out blank ones.

    Their lines are scanned one by one, so that a line of one author does not hide those of others.
    """
    lessons = Section("lessons", LESSONS_LABEL, lessons_text([*state.learned.lessons, *state.lessons]), scanned=True)
    rules = Section("rules", RULES_LABEL, rules_text(state.learned.rules_for(agent_id)), scanned=True)
    outcomes = Section("outcomes", OUTCOMES_LABEL, outcomes_text(state.learned.outcomes), scanned=True)
    return (lessons, rules, outcomes) if is_lead else (lessons, rules)


NOTES_OF_AGENT: Final = "Notes of the agent, not statements of the person:\n"
"""Between the facts that a person stated to an agent and what the agent wrote about the person."""


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


# The notes that an agent's memory block holds anyway: what was remembered on purpose and still counts.


READ_MOST: Final = 1_000
"""Notes that are considered, the newest first; some thirty times what the default budget holds."""
KEPT_MOST: Final = 1_000
"""Agents whose notes are kept, some 10 KB each."""
_standings_changed: Final = changes_of((RETRACTIONS, SUPERSESSIONS))
_SELECT: Final = f"""SELECT {SELECT_LIST} FROM {JOURNAL_SOURCE} WHERE workspace_id = $workspace
        AND entry_type = '{REMEMBERED}' AND mission_id IS NULL
        AND (agent_id = $agent OR crew_id = $crew AND (agent_id IS NULL OR list_contains($leads::VARCHAR[], agent_id)))
    ORDER BY seq DESC LIMIT {READ_MOST}"""
_USES: Final = f"""SELECT entry_id, reference_count FROM {IMPORTANCE}
    WHERE workspace_id = ? AND entry_id IN (SELECT unnest(?::VARCHAR[]))"""


class _Key(NamedTuple):
    workspace_id: str
    agent_id: str | None
    crew_id: str | None
    leads: frozenset[str]


class RememberedNotes:
    """Reads notes, and keeps them until a commit brings one or changes whether one counts.

    Args:
        views: The views; followed until ``close``.
    """

    def __init__(self, views: ViewReader) -> None:
        self._views = views
        self._tokens = KeptValues(views, (WORKSPACE_SETTINGS,), in_thread(self._budget))
        self._notes = KeptValues(views, _bears_on_notes, in_thread(self._read), most=KEPT_MOST)

    def close(self) -> None:
        """Stop following the views."""
        self._notes.close()
        self._tokens.close()

    async def text(
        self,
        workspace_id: str,
        agent_id: str | None,
        crew_id: str | None,
        leads: frozenset[str],
        tokens: int | None,
    ) -> NoteLines:
        """The notes for a block.

        Args:
            workspace_id: The workspace.
            agent_id: The agent whose block it is.
            crew_id: Its crew.
            leads: The agents of the crew whose notes it gets, too.
            tokens: Budget with the frame; that of the workspace if None.
        """
        budget = await self._tokens.of(workspace_id) if tokens is None else tokens
        budget -= REMEMBERED_FRAME_TOKENS
        if budget <= 0:
            return NoteLines("")
        key = _Key(workspace_id, agent_id, crew_id, leads)
        notes = await self._notes.of(key)
        if not notes:
            return NoteLines("")
        note_lines = await asyncio.to_thread(notes_text, notes, agent_id, budget)
        if note_lines.omitted:
            notes = await asyncio.to_thread(self._with_uses, workspace_id, notes)
            note_lines = await asyncio.to_thread(notes_text, notes, agent_id, budget)
        return note_lines

    def _budget(self, workspace_id: str) -> int:
        tokens = read_workspace_settings(self._views, workspace_id).remembered_tokens
        return TOKENS_DEFAULT if tokens is None else tokens

    def _read(self, key: _Key) -> list[Note]:
        params: dict[str, Any] = {"workspace": key.workspace_id, "agent": key.agent_id, "crew": key.crew_id}
        params |= {"leads": sorted(key.leads)}
        entries = [StoredEntry.of_row(row) for row in self._views.rows(_SELECT, params)]
        add_marks(self._views, entries)
        return [_note(entry) for entry in entries if _counts(entry)]

    def _with_uses(self, workspace_id: str, notes: Sequence[Note]) -> list[Note]:
        uses = dict(self._views.rows(_USES, [workspace_id, [note.entry_id for note in notes]]))
        return [replace(note, uses=uses.get(note.entry_id, 0)) for note in notes]


def _bears_on_notes(batch: CommittedBatch) -> bool:
    """Whether a commit brings a note or may decide which entries count; similarity decides nothing."""
    entries, relations = batch.changes.get(ENTRIES.name), batch.changes.get(RELATIONS.name)
    return (
        any(event.entry.entry_type == REMEMBERED for event in batch.entries)
        or _standings_changed(batch)
        or any(changes is not None and (changes.removed or changes.rewritten) for changes in (entries, relations))
        or any(relation != SIMILAR for columns in getattr(relations, "written", ()) for relation in columns["relation"])
    )


def _counts(entry: StoredEntry) -> bool:
    standing = entry.record["standing"]
    return standing is None or standing["state"] == State.DISPUTED


def _note(entry: StoredEntry) -> Note:
    record = entry.record
    return Note(
        seq=entry.seq,
        entry_id=entry.id,
        day=day_of(record["ts"]),
        text=record["summary"],
        agent_id=record["agent_id"],
        actor_type=record["actor_type"],
        actor_id=record["actor_id"],
    )


TOPICS_RANKED: Final = 20
"""Chunks of topics by which a query ranks them."""


class DocumentsByOwner(Protocol):
    """``documents.owned.PromptDocuments``, or what asks a provider."""

    async def of(self, workspace_id: str, owner: str, today: date) -> OwnedDocuments:
        """The documents of an owner."""
        ...


class MemoryBlocks:
    """Builds blocks.

    Args:
        views: The views; followed until ``close``.
        registry: The registrations.
        documents: The present documents.
        search: Ranks topics.
        opener: Finds the profile of the person who opened the session; ``Operators.opener``.
        record: Records what a block holds.
        clock: The time now, UTC.
    """

    def __init__(
        self,
        views: ViewReader,
        registry: Registry,
        documents: DocumentsByOwner,
        search: DocumentSearch,
        opener: Callable[[Caller, str, str | None, str | None], Opener],
        record: RecordSearch = no_record,
        *,
        clock: Callable[[], datetime],
    ) -> None:
        self._views = views
        self._record = record
        self._registry = registry
        self._documents = documents
        self._search = search
        self._opener = opener
        self._clock = clock
        self._learning = PromptLearning(views)
        self._remembered = RememberedNotes(views)

    def close(self) -> None:
        """Stop following the views."""
        self._learning.close()
        self._remembered.close()

    async def build(self, caller: Caller, request: MemoryBlockRequest) -> MemoryBlockAnswer:
        """The block.

        Raises:
            NotAllowed: If AGENT or LEAD names another agent or crew.
            InvalidQuery: If an operator names neither.
        """
        check_own(caller, request)
        if caller.principal.agent_id is None and request.agent_id is None and request.crew_id is None:
            raise InvalidQuery("whose block is missing", hint="name agent_id, or crew_id", field="agent_id")
        agent_id = request.agent_id or caller.principal.agent_id
        crew_id = request.crew_id or caller.principal.crew_id
        workspace_id = caller.workspace_id
        view_seq = self._views.view_seq(DOCUMENTS_PROJECTION)
        if crew_id is None and caller.administers and agent_id is not None:
            registered = await self._registry.agent(workspace_id, agent_id)
            crew_id = registered.crew_id if registered is not None else None
        state = await self._state(workspace_id, agent_id, crew_id)
        if state.agent is not None and not state.agent.memory_enabled:
            return MemoryBlockAnswer(text="", memory_enabled=False, sections=(), usage={}, view_seq=view_seq)
        budget = _budget(request.max_chars, state.agent)
        if request.opener is not None:
            opener = await asyncio.to_thread(self._opener, caller, request.opener, agent_id, request.session)
            state = replace(state, opener=opener)
        shared = (
            state.leads if caller.principal.role is not Role.AGENT else frozenset[str]()
        )  # as in scope ``crew_shared``
        tokens = request.remembered_tokens
        notes = await self._remembered.text(workspace_id, agent_id, crew_id, shared, tokens)
        state = replace(state, notes=notes)
        given = block_input(caller, state, agent_id, crew_id)
        if request.query is not None and crew_may_overflow(given.crew, budget):
            relevance = await self._relevance(workspace_id, crew_id, request.query)
            given = replace(given, crew=tuple(ranked(section, relevance) for section in given.crew))
        block = build_memory_block(given, budget)
        answer = {
            "text": block.text,
            "memory_enabled": True,
            "sections": block.sections,
            "usage": block.usage,
            "opener_verified": None if state.opener is None else state.opener.verified,
            "receipt": None,
            "view_seq": view_seq,
        }
        texts = held_texts(state, block.sections, agent_id, crew_id)
        if texts:
            held = MemoryGiven(prompt=PROMPT, texts=texts, view_seq=view_seq, asked_by=caller.principal.token_id)
            answer["receipt"] = self._record(caller.principal, workspace_id, held, request.session)
        return MemoryBlockAnswer.model_validate(answer, from_attributes=True)

    async def _state(self, workspace_id: str, agent_id: str | None, crew_id: str | None) -> BlockState:
        today = self._clock().astimezone(UTC).date()
        agent = None if agent_id is None else await self._registry.agent(workspace_id, agent_id)
        members = [] if crew_id is None else await self._registry.agents(workspace_id, crew_id)
        own, crew, workspace = [
            OwnedDocuments() if owner is None else await self._documents.of(workspace_id, owner, today)
            for owner in _owners(agent_id, crew_id)
        ]
        learned = CrewLearning() if crew_id is None else await self._learning.of(workspace_id, crew_id)
        lessons = () if agent_id is None else await self._learning.own(workspace_id, agent_id)
        return BlockState(today, agent, frozenset(members), own, crew, workspace, learned, lessons)

    async def _relevance(self, workspace_id: str, crew_id: str | None, query: str) -> Mapping[str, float]:
        """Label of a topic → how well its best chunk matches the query."""
        if crew_id is None or not query.strip():
            return {}
        scope = SearchedOwners((owner_of(Scope.CREW, crew_id),), None, crew_id)
        answer = await self._search.find(workspace_id, scope, query, TOPICS_RANKED, tier="topics")
        best: dict[str, float] = {}
        for hit in answer.hits:
            best.setdefault(hit.label, hit.score)
        return best


def _owners(agent_id: str | None, crew_id: str | None) -> tuple[str | None, str | None, str]:
    return (
        None if agent_id is None else owner_of(Scope.AGENT, agent_id),
        None if crew_id is None else owner_of(Scope.CREW, crew_id),
        owner_of(Scope.WORKSPACE, None),
    )


def _budget(max_chars: int | None, agent: AgentRow | None) -> int:
    if max_chars is not None:
        return max_chars
    registered = agent.memory_budget_chars if agent is not None else None
    return BUDGET_DEFAULT if registered is None else registered


ANSWERS: Final = ((MEMORY_BLOCK, MemoryBlocks.build),)

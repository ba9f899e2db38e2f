"""The use-case that builds the memory block of an agent's prompt (contract §15).

Invariant: AGENT and LEAD get the block of their own agent, their own crew and the workspace; an agent whose memory is off
gets none; blocked text reaches no prompt, whoever asks.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final

from ...schemas.errors import InvalidQuery
from ...schemas.events.workspaces import AgentRole
from ...schemas.operations.memory_block import MemoryBlockAnswer, MemoryBlockRequest, SectionShown
from ...schemas.ports import ViewReader
from ...schemas.principal import Role
from ...schemas.rules.assembler import Section
from ...schemas.rules.memory_block import BUDGET_DEFAULT, WINDOW_DAYS, BlockInput, Daily, build_memory_block
from ...schemas.rules.tiers import TIERS, Scope, key_problem, owner_of
from ...schemas.views import DOCUMENTS_PROJECTION
from ...schemas.views.workspaces import AgentRow
from ..desk import Caller
from ..query.chunks.documents import DocumentSearch
from ..query.chunks.scope import SearchedOwners
from .documents.addressing import check_own
from .documents.owned import OwnedDocuments, PromptDocuments
from .documents.past import Past
from .registry import Registry

TOPICS_RANKED: Final = 50
"""Chunks of topics by which a query ranks them."""
_SLUG_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class _State:
    """What a block is made of: the day, the registrations, the documents of agent, crew and workspace."""

    today: date
    agent: AgentRow | None
    members: frozenset[str]
    own: OwnedDocuments
    crew: OwnedDocuments
    workspace: OwnedDocuments


class MemoryBlocks:
    """Builds blocks.

    Args:
        views: The views.
        registry: What is registered.
        documents: The present documents.
        search: Ranks topics.
        clock: The time now, UTC.
    """

    def __init__(
        self,
        views: ViewReader,
        registry: Registry,
        documents: PromptDocuments,
        search: DocumentSearch,
        *,
        clock: Callable[[], datetime],
    ) -> None:
        self._views = views
        self._registry = registry
        self._documents = documents
        self._search = search
        self._clock = clock

    async def build(self, caller: Caller, asked: MemoryBlockRequest) -> MemoryBlockAnswer:
        """The block.

        Raises:
            NotAllowed: If AGENT or LEAD names another agent or crew.
            InvalidQuery: If an operator names neither.
            VersionGone: If ``as_of`` needs a text that was swept.
        """
        check_own_block(caller, asked)
        agent_id = asked.agent_id or caller.principal.agent_id
        crew_id = asked.crew_id or caller.principal.crew_id
        workspace_id = caller.workspace_id
        view_seq = self._views.view_seq(DOCUMENTS_PROJECTION)
        if crew_id is None and caller.administers and agent_id is not None:
            registered = await self._registry.agent(workspace_id, agent_id)
            crew_id = registered.crew_id if registered is not None else None
        if asked.as_of is None:
            state = await self._now(workspace_id, agent_id, crew_id)
        else:
            state = await asyncio.to_thread(self._then, workspace_id, agent_id, crew_id, asked.as_of)
            view_seq = min(view_seq, asked.as_of)
        if state.agent is not None and not state.agent.memory_enabled:
            return MemoryBlockAnswer(text="", memory_enabled=False, sections=(), usage={}, view_seq=view_seq)
        relevance = await self._relevance(workspace_id, crew_id, asked.query) if state.crew.keys("topics") else {}
        given = _input(caller, state, agent_id, crew_id, asked.opener, relevance)
        made = build_memory_block(given, _budget(asked.max_chars, state.agent))
        sections = tuple(
            SectionShown(
                block=one.block, name=one.name, label=one.label, chars=one.chars, cut=one.cut, blocked=one.blocked
            )
            for one in made.sections
        )
        return MemoryBlockAnswer(
            text=made.text, memory_enabled=True, sections=sections, usage=made.usage, view_seq=view_seq
        )

    async def _now(self, workspace_id: str, agent_id: str | None, crew_id: str | None) -> _State:
        today = self._clock().astimezone(UTC).date()
        agent = None if agent_id is None else await self._registry.agent(workspace_id, agent_id)
        members = [] if crew_id is None else await self._registry.agents(workspace_id, crew_id)
        owned = [
            OwnedDocuments() if owner is None else await self._documents.of(workspace_id, owner, today)
            for owner in _owners(agent_id, crew_id)
        ]
        return _State(today, agent, frozenset(row.agent_id for row in members), *owned)

    def _then(self, workspace_id: str, agent_id: str | None, crew_id: str | None, seq: int) -> _State:
        past = Past(self._views, workspace_id, seq)
        agents = past.agents()
        agent = next((row for row in agents if row.agent_id == agent_id), None)
        members = frozenset(row.agent_id for row in agents if crew_id is not None and row.crew_id == crew_id)
        owned = [OwnedDocuments() if owner is None else past.documents(owner) for owner in _owners(agent_id, crew_id)]
        return _State(past.day() or self._clock().astimezone(UTC).date(), agent, members, *owned)

    async def _relevance(self, workspace_id: str, crew_id: str | None, query: str | None) -> Mapping[str, float]:
        """Label of a topic → how well its best chunk matches the query."""
        if query is None or crew_id is None or not query.strip():
            return {}
        scope = SearchedOwners((owner_of(Scope.CREW, crew_id),), None, crew_id)
        found = await self._search.find(workspace_id, scope, query, TOPICS_RANKED, tier="topics")
        best: dict[str, float] = {}
        for hit in found.hits:
            best.setdefault(hit.owner.document_of(hit.slot).label, hit.score)
        return best


def check_own_block(caller: Caller, asked: MemoryBlockRequest) -> None:
    """Refuse a block of another agent or crew than the token's, and an operator's that names none.

    Raises:
        NotAllowed: If it is another's.
        InvalidQuery: If an operator names neither agent nor crew.
    """
    check_own(caller, asked)
    if caller.principal.agent_id is None and asked.agent_id is None and asked.crew_id is None:
        raise InvalidQuery("whose block is missing", hint="name agent_id, or crew_id", field="agent_id")


def peer_slug(user: str, workspace_id: str) -> str:
    """The key of a person's card: 16 hex digits of SHA-256 of user, NUL and workspace (contract §13)."""
    return hashlib.sha256(f"{user}\0{workspace_id}".encode()).hexdigest()[:_SLUG_DIGITS]


def _owners(agent_id: str | None, crew_id: str | None) -> tuple[str | None, str | None, str]:
    return (
        None if agent_id is None else owner_of(Scope.AGENT, agent_id),
        None if crew_id is None else owner_of(Scope.CREW, crew_id),
        owner_of(Scope.WORKSPACE, None),
    )


def _input(
    caller: Caller,
    state: _State,
    agent_id: str | None,
    crew_id: str | None,
    opener: str | None,
    relevance: Mapping[str, float],
) -> BlockInput:
    day = state.today.isoformat()
    is_alone = state.members == {agent_id}
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
        crew=tuple(_crew_sections(crew, day, relevance)),
        workspace=_section(state.workspace, "WORKSPACE"),
        pins=tuple(section for section in pins if section is not None),
        persona=persona,
        peer=_peer(state.own, opener, caller.workspace_id),
        is_lead=is_lead and is_member,
        has_crew=is_member,
    )


def _section(
    owned: OwnedDocuments,
    tier: str,
    key: str | None = None,
    *,
    label: str | None = None,
    relevance: float | None = None,
) -> Section | None:
    found = owned.get(tier, key)
    if found is None:
        return None
    rule = TIERS[tier]
    return Section(
        rule.label_of(key), label or rule.title.format(key=key), found.content, found.finding, relevance=relevance
    )


def _prior(owned: OwnedDocuments, today: date) -> Daily | None:
    """The newest log before today, with its text if it is within the window."""
    days = [key for key in owned.keys("daily") if key < today.isoformat() and key_problem(TIERS["daily"], key) is None]
    newest = days[-1] if days else owned.last_day
    if newest is None:
        return None
    days_ago = (today - date.fromisoformat(newest)).days
    return Daily(newest, days_ago, _section(owned, "daily", newest) if days_ago <= WINDOW_DAYS else None)


def _crew_sections(crew: OwnedDocuments, day: str, relevance: Mapping[str, float]) -> Iterator[Section]:
    """CREW.md, the crew's log of today, topics by name."""
    topics = (
        _section(
            crew, "topics", key, relevance=relevance.get(TIERS["topics"].label_of(key), 0.0) if relevance else None
        )
        for key in crew.keys("topics")
    )
    log = _section(crew, "daily", day, label=f"Daily log: {day} (today)")
    yield from (section for section in (_section(crew, "CREW"), log, *topics) if section is not None)


def _peer(owned: OwnedDocuments, opener: str | None, workspace_id: str) -> Section | None:
    """The agent's card of a person, kept under the slug of contract §13 or under the person's own name."""
    if opener is None:
        return None
    return _section(owned, "peers", peer_slug(opener, workspace_id)) or _section(owned, "peers", opener)


def _budget(asked: int | None, agent: AgentRow | None) -> int:
    if asked is not None:
        return asked
    registered = agent.memory_budget_chars if agent is not None else None
    return BUDGET_DEFAULT if registered is None else registered

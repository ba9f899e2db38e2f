"""The use-case that builds the memory block of an agent's prompt (contract §15).

Invariant: AGENT and LEAD get the block of their own agent, their own crew and the workspace; an agent whose memory is off
gets none; blocked text reaches no prompt of any caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Final, Protocol

from ...schemas.errors import InvalidQuery
from ...schemas.operations.memory_block import MEMORY_BLOCK, MemoryBlockAnswer, MemoryBlockRequest, SectionShown
from ...schemas.ports import ViewReader
from ...schemas.principal import Role
from ...schemas.rules.memory_block import BUDGET_DEFAULT, build_memory_block, crew_may_overflow
from ...schemas.rules.remembered import NoteLines
from ...schemas.rules.tiers import Scope, owner_of
from ...schemas.views import DOCUMENTS_PROJECTION
from ...schemas.views.workspaces import AgentRow
from ..desk import Caller
from ..query.chunks.documents import DocumentSearch
from ..query.chunks.scope import SearchedOwners
from .block_input import BlockState, block_input, ranked
from .documents.addressing import check_own
from .documents.owned import OwnedDocuments
from .documents.past import Past
from .learned import NOW
from .profiles import Opener
from .prompt_learning import CrewLearning, PromptLearning
from .registry import Registry
from .remembered import RememberedNotes

TOPICS_RANKED: Final = 20
"""Chunks of topics by which a query ranks them."""


class DocumentsByOwner(Protocol):
    """``documents.owned.PromptDocuments``, or what asks a provider."""

    async def of(self, workspace_id: str, owner: str, today: date) -> OwnedDocuments:
        """The documents of an owner."""
        ...

    def check_past(self, workspace_id: str) -> None:
        """Refuse documents as of a sequence where they are not in the journal."""
        ...


class MemoryBlocks:
    """Builds blocks.

    Args:
        views: The views; followed until ``close``.
        registry: The registrations.
        documents: The present documents.
        search: Ranks topics.
        opener: Finds the profile of the person who opened the session; ``operators.Operators.opener``.
        clock: The time now, UTC.
    """

    def __init__(
        self,
        views: ViewReader,
        registry: Registry,
        documents: DocumentsByOwner,
        search: DocumentSearch,
        opener: Callable[[Caller, str, str | None, str | None, int], Opener],
        *,
        clock: Callable[[], datetime],
    ) -> None:
        self._views = views
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
            VersionGone: If ``as_of`` needs a text that was swept.
        """
        check_own_block(caller, request)
        agent_id = request.agent_id or caller.principal.agent_id
        crew_id = request.crew_id or caller.principal.crew_id
        workspace_id = caller.workspace_id
        view_seq = self._views.view_seq(DOCUMENTS_PROJECTION)
        if crew_id is None and caller.administers and agent_id is not None:
            registered = await self._registry.agent(workspace_id, agent_id)
            crew_id = registered.crew_id if registered is not None else None
        if request.as_of is None:
            state = await self._now(workspace_id, agent_id, crew_id)
        else:
            self._documents.check_past(workspace_id)
            state = await asyncio.to_thread(self._then, workspace_id, agent_id, crew_id, request.as_of)
            view_seq = min(view_seq, request.as_of)
        if state.agent is not None and not state.agent.memory_enabled:
            return MemoryBlockAnswer(text="", memory_enabled=False, sections=(), usage={}, view_seq=view_seq)
        budget = _budget(request.max_chars, state.agent)
        if request.opener is not None:
            seq = NOW if request.as_of is None else request.as_of
            opener = await asyncio.to_thread(self._opener, caller, request.opener, agent_id, request.session, seq)
            state = replace(state, opener=opener)
        state = replace(state, notes=await self._notes(caller, request, agent_id, crew_id, state.leads))
        given = block_input(caller, state, agent_id, crew_id)
        if request.query is not None and crew_may_overflow(given.crew, budget):
            relevance = await self._relevance(workspace_id, crew_id, request.query)
            given = replace(given, crew=tuple(ranked(section, relevance) for section in given.crew))
        block = build_memory_block(given, budget)
        sections = tuple(
            SectionShown(
                block=section.block,
                name=section.name,
                label=section.label,
                chars=section.chars,
                cut=section.cut,
                blocked=section.blocked,
            )
            for section in block.sections
        )
        return MemoryBlockAnswer(
            text=block.text,
            memory_enabled=True,
            sections=sections,
            usage=block.usage,
            opener_verified=None if state.opener is None else state.opener.verified,
            view_seq=view_seq,
        )

    async def _notes(
        self,
        caller: Caller,
        request: MemoryBlockRequest,
        agent_id: str | None,
        crew_id: str | None,
        leads: frozenset[str],
    ) -> NoteLines:
        """The remembered notes of a block; those of leads for whom may recall in scope ``crew_shared``."""
        shared = leads if caller.principal.role is not Role.AGENT else frozenset[str]()
        tokens = request.remembered_tokens
        return await self._remembered.text(caller.workspace_id, agent_id, crew_id, shared, tokens, request.as_of)

    async def _now(self, workspace_id: str, agent_id: str | None, crew_id: str | None) -> BlockState:
        today = self._clock().astimezone(UTC).date()
        agent = None if agent_id is None else await self._registry.agent(workspace_id, agent_id)
        members = [] if crew_id is None else await self._registry.agents(workspace_id, crew_id)
        own, crew, workspace = [
            OwnedDocuments() if owner is None else await self._documents.of(workspace_id, owner, today)
            for owner in _owners(agent_id, crew_id)
        ]
        learned = CrewLearning() if crew_id is None else await self._learning.of(workspace_id, crew_id)
        return BlockState(today, agent, frozenset(members), own, crew, workspace, learned)

    def _then(self, workspace_id: str, agent_id: str | None, crew_id: str | None, seq: int) -> BlockState:
        past = Past(self._views, workspace_id, seq)
        agents = past.agents()
        agent = next((row for row in agents if row.agent_id == agent_id), None)
        members = frozenset(row for row in agents if crew_id is not None and row.crew_id == crew_id)
        own, crew, workspace = [
            OwnedDocuments() if owner is None else past.documents(owner) for owner in _owners(agent_id, crew_id)
        ]
        learned = CrewLearning() if crew_id is None else self._learning.at(workspace_id, crew_id, seq)
        today = past.day() or self._clock().astimezone(UTC).date()
        return BlockState(today, agent, members, own, crew, workspace, learned)

    async def _relevance(self, workspace_id: str, crew_id: str | None, query: str) -> Mapping[str, float]:
        """Label of a topic → how well its best chunk matches the query."""
        if crew_id is None or not query.strip():
            return {}
        scope = SearchedOwners((owner_of(Scope.CREW, crew_id),), None, crew_id)
        answer = await self._search.find(workspace_id, scope, query, TOPICS_RANKED, tier="topics")
        best: dict[str, float] = {}
        for hit in answer.hits:
            best.setdefault(hit.owner.document_of(hit.slot).label, hit.score)
        return best


def check_own_block(caller: Caller, request: MemoryBlockRequest) -> None:
    """Refuse a block of another agent or crew than the token's, and an operator's that names none.

    Raises:
        NotAllowed: If it is another's.
        InvalidQuery: If an operator names neither agent nor crew.
    """
    check_own(caller, request)
    if caller.principal.agent_id is None and request.agent_id is None and request.crew_id is None:
        raise InvalidQuery("whose block is missing", hint="name agent_id, or crew_id", field="agent_id")


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

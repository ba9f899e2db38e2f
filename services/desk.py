"""The desk: one path from a raw request to an answer, the same for HTTP, MCP and the command line.

Invariant: role, fields, workspace and ``min_seq`` are checked here, in this order, before a handler runs. A handler decides
only what depends on its arguments.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypedDict, TypeVar

from pydantic import BaseModel, ValidationError

from ..schemas.core.entry import ActorType
from ..schemas.core.errors import InvalidQuery, InvalidRequest, NotAllowed
from ..schemas.core.ids import SYSTEM_WORKSPACE
from ..schemas.core.operation import Access, Effect, Operation, Request, body_problems
from ..schemas.core.ports import ViewReader
from ..schemas.core.principal import Principal, Role
from ..schemas.settings import MIN_SEQ_WAIT_S
from .budgets import SPENDER
from .ownership import ALONE, Ownership

if TYPE_CHECKING:
    from .entries.queries import JournalQueries
    from .node import Node
    from .telemetry import Telemetry

RUN: Final[ContextVar[str | None]] = ContextVar("crew_journal_run", default=None)
"""The run that a request belongs to, from the header ``Crew-Run``; None if the request names none."""

Q = TypeVar("Q", bound=Request)
A = TypeVar("A", bound=BaseModel)


class ActorFields(TypedDict):
    """The actor of a decision, as fields of an entry."""

    actor_type: ActorType
    actor_id: str


class AuthorFields(ActorFields):
    """The same, with the agent and the crew of the token."""

    agent_id: str | None
    crew_id: str | None


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request and its workspace.

    Attributes:
        principal: The binding of the token.
        workspace_id: The workspace of the request; ``default`` if a token of all workspaces names none.
        workspace_or_all: The same, but None (all workspaces) if a token of all workspaces names none.
    """

    principal: Principal
    workspace_id: str
    workspace_or_all: str | None

    @classmethod
    def of(cls, principal: Principal, named: str | None = None) -> Caller:
        """The caller of a request that names the workspace ``named``, or none.

        Raises:
            NotAllowed: If the token is for another workspace.
        """
        return cls(principal, principal.workspace(named), principal.workspace_or_all(named))

    @property
    def administers(self) -> bool:
        """Whether the role is OWNER or ADMIN."""
        return self.principal.role.administers

    @property
    def actor(self) -> str:
        """The ``actor_id`` of the caller's decisions: the person who signed in, else the id of the token."""
        return self.principal.actor

    @property
    def acts_as(self) -> tuple[ActorType, str]:
        """Type and id of the actor: OWNER and ADMIN are users under name or id of the token, others their agent."""
        if self.administers:
            return ActorType.USER, self.actor
        return ActorType.AGENT, self.principal.agent_id or self.actor

    @property
    def actor_fields(self) -> ActorFields:
        """``acts_as`` as fields of an entry."""
        kind, actor = self.acts_as
        return {"actor_type": kind, "actor_id": actor}

    @property
    def author_fields(self) -> AuthorFields:
        """``actor_fields``, with the agent and the crew of the token."""
        return {**self.actor_fields, "agent_id": self.principal.agent_id, "crew_id": self.principal.crew_id}


Handler = Callable[[Caller, Q], Awaitable[A]]


class Moment(Protocol):
    """What answers as of a past moment."""

    @property
    def seq(self) -> int:
        """The sequence of the moment."""
        ...

    @property
    def node(self) -> Node:
        """What use-cases share, over the views of that moment; it records nothing."""
        ...

    @property
    def desk(self) -> Desk:
        """Answers operations by the views of that moment."""
        ...

    @property
    def queries(self) -> JournalQueries:
        """Reads entries of that moment."""
        ...


Past = Callable[[str, str], AbstractAsyncContextManager[Moment]]
"""Opens the views as of a sequence or a time; takes also the name of its field, for errors."""


class Desk:
    """Answers operations.

    Args:
        views: Waits until projections have passed a sequence.
        require_journal: Raises if a workspace's documents are not in the journal; takes the workspace and a description
            of the request.
        wait_s: Seconds to wait at most.
        ownership: For which workspaces this node decides and searches; another node does it for the others.
    """

    def __init__(
        self,
        views: ViewReader,
        require_journal: Callable[[str, str], None] | None = None,
        *,
        wait_s: float = MIN_SEQ_WAIT_S,
        ownership: Ownership = ALONE,
    ) -> None:
        self._views = views
        self._require_journal = require_journal
        self._wait_s = wait_s
        self._ownership = ownership
        self.past: Past | None = None
        """Opens past views; None if this desk has none."""
        self.telemetry: Telemetry | None = None
        """Records spans; None if no receiver is configured."""
        self._handlers: dict[str, Handler[Any, Any]] = {}

    def bind(self, operation: Operation[Q, A], handler: Handler[Q, A]) -> None:
        """Let ``handler`` answer ``operation``."""
        self._handlers[operation.name] = handler

    @property
    def bound(self) -> frozenset[str]:
        """Names of the operations that have a handler."""
        return frozenset(self._handlers)

    async def run(self, operation: Operation[Q, A], principal: Principal, raw: Mapping[str, Any]) -> A:
        """Answer one request.

        Raises:
            NotAllowed: If the role or the workspace does not allow it.
            InvalidQuery: If a field of an operation that reads is wrong; ``InvalidRequest`` for the others.
            ViewsBehind: If the views do not pass ``min_seq`` in time.
            OverBudget: If the operation changes something and the token has used up a budget.
            NotByProvider: If the operation needs the journal and the workspace's documents are not in it.
            NotOwner: If the node that decides was lost while it worked on the request.
            CrewJournalError: Any other error of the handler.
        """
        if self.telemetry is None:
            return await self._run(operation, principal, raw)
        with self.telemetry.operation(operation.name, principal, raw, RUN.get()) as observe:
            answer = await self._run(operation, principal, raw)
            observe(answer)
            return answer

    async def _run(self, operation: Operation[Q, A], principal: Principal, raw: Mapping[str, Any]) -> A:
        check_access(operation.access, principal)
        request = parse(operation, raw)
        caller = Caller.of(principal, getattr(request, "workspace_id", None))

        async def here() -> A:
            return await self._run_here(operation, caller, request, raw)

        is_anyones = (
            operation.decided != "index" if operation.effect is Effect.READS else operation.decided == "anywhere"
        )
        if self._ownership is ALONE or is_anyones:
            return await here()
        answer: A = await self._ownership.answer(
            operation, decided_for(operation, caller.workspace_id), principal, raw, here
        )
        return answer

    async def _run_here(self, operation: Operation[Q, A], caller: Caller, request: Q, raw: Mapping[str, Any]) -> A:
        if self.past is not None and (field := operation.past) and (moment := getattr(request, field)) is not None:
            then = {name: value for name, value in raw.items() if name not in (field, "min_seq")}
            if self._require_journal is not None:
                self._require_journal(caller.workspace_id, field)
            async with self.at(moment, field, getattr(request, "min_seq", None)) as past:
                return await past.desk.run(operation, caller.principal, then)
        return await self._answer(operation, caller, request)

    @asynccontextmanager
    async def at(self, moment: str, field: str, min_seq: int | None) -> AsyncIterator[Moment]:
        """What answers as of a sequence or a time, once all views have passed ``min_seq``.

        Args:
            moment: The sequence or the time.
            field: The name of its field, for errors.
            min_seq: A sequence, so that a moment right after a write can be named; None to wait for none.

        Raises:
            InvalidQuery: If the journal does not have the moment.
            ViewsBehind: If the views do not pass ``min_seq`` in time.
        """
        if self.past is None:
            raise LookupError("this desk has no past views")
        if min_seq:
            await self._views.wait_for(min_seq, self._wait_s)
        async with self.past(moment, field) as past:
            yield past

    async def _answer(self, operation: Operation[Q, A], caller: Caller, request: Q) -> A:
        if operation.views and (min_seq := getattr(request, "min_seq", None)):
            await self._views.wait_for(min_seq, self._wait_s, *operation.views)
        if operation.effect is not Effect.READS and (spender := SPENDER.get()) is not None:
            spender.admit()  # checked before anything is stored, because a stored change must not be answered with an error
        if operation.needs_journal and self._require_journal is not None:
            self._require_journal(caller.workspace_id, operation.needs_journal)
        answer: A = await self._handlers[operation.name](caller, request)
        return answer


def decided_for(operation: Operation[Any, Any], workspace_id: str) -> str:
    """The workspace whose owner decides: the caller's, or that of the system."""
    of_node = operation.decided == "node" or operation.access is Access.NODE_OWNER
    return SYSTEM_WORKSPACE if of_node else workspace_id


def check_access(access: Access, principal: Principal) -> None:
    """Check that the token may call the operation.

    Raises:
        NotAllowed: If the token may not call it.
    """
    if access is Access.LEADER and principal.role is Role.AGENT:
        raise NotAllowed("a token of role AGENT may not decide this", hint="use a LEAD, OWNER or ADMIN token")
    if access not in (Access.EVERY_TOKEN, Access.LEADER) and not principal.role.administers:
        raise NotAllowed(
            f"a token of role {principal.role.value} may not administer", hint="use an OWNER or ADMIN token"
        )
    if access is Access.NODE_OWNER and principal.workspace_id is not None:
        raise NotAllowed(
            "this concerns every workspace of the node", hint="use an OWNER token for all workspaces (admin.token)"
        )


def parse(operation: Operation[Q, A], raw: Mapping[str, Any]) -> Q:
    """The request as a model.

    Raises:
        InvalidQuery: If the operation reads; names the first invalid field.
        InvalidRequest: If the operation changes something; names every invalid field.
    """
    try:
        return operation.request.model_validate(raw)
    except ValidationError as error:
        raise for_effect(InvalidRequest(body_problems(error, operation.request)), operation) from None


def for_effect(error: InvalidRequest, operation: Operation[Any, Any]) -> InvalidRequest | InvalidQuery:
    """The error itself if the operation changes something; for a reading operation, an error for the first field only."""
    if operation.effect is not Effect.READS:
        return error
    first = error.problems[0]
    hint = f"{first.field}: {first.fix}" if first.fix else ""
    return InvalidQuery(str(first), hint=hint, field=first.field)


# Decides who may change records of another author, for retractions, facts and drawers.
#
# Invariant: the author is determined by the token with which something was recorded, never by a payload. OWNER and ADMIN
# may change everything, and only they may change their records. An agent may change its own records and those that a
# reactor derived from its conversations; a LEAD may also change records of its crew's agents.


@dataclass(frozen=True, slots=True)
class Author:
    """Who recorded something.

    Attributes:
        type: ``user`` for OWNER and ADMIN, ``agent`` for LEAD and AGENT, ``system`` for a reactor.
        name: The agent, the id of the operator's token, or the reactor.
        agent_id: The agent; for a reactor, the agent of the conversation that it read.
        crew_id: The crew of the token.
    """

    type: str
    name: str | None
    agent_id: str | None = None
    crew_id: str | None = None


def is_operator(author: Author) -> bool:
    """Whether an OWNER or ADMIN recorded it."""
    return author.type == ActorType.USER.value


def may_change(caller: Caller, author: Author, *, shared: bool = False) -> bool:
    """Whether the caller may change what the author recorded.

    Args:
        caller: The caller.
        author: The author.
        shared: Whether agents share the record, like facts of the knowledge graph, so that each agent may change
            records of others.
    """
    if caller.administers:
        return True
    if is_operator(author):
        return False
    principal = caller.principal
    own = author.agent_id is not None and author.agent_id == principal.agent_id
    crew = author.crew_id is not None and author.crew_id == principal.crew_id
    led = principal.role is Role.LEAD and author.type == ActorType.AGENT.value and crew
    return shared or own or led


def check_may_change(caller: Caller, author: Author, what: str, *, shared: bool = False) -> None:
    """Refuse a change to what another author recorded.

    Args:
        caller: The caller.
        author: The author.
        what: The record to change, with its id, such as ``drawer d1``.
        shared: As in ``may_change``.

    Raises:
        NotAllowed: If the caller may not change it.
    """
    if may_change(caller, author, shared=shared):
        return
    if is_operator(author):
        raise NotAllowed(f"{what} was recorded by an OWNER or ADMIN", hint="ask an OWNER or ADMIN to change it")
    by = f"{author.type} {author.name}" if author.name else author.type
    raise NotAllowed(
        f"{what} was recorded by {by}, whose records this token may not change",
        hint="ask its author, a LEAD of the author's crew, an OWNER or ADMIN",
    )

"""The caller of a request: what its token is bound to.

Invariant: workspace, crew, agent and role come from the token, never from a body alone (DESIGN §3).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .entry import Id, WorkspaceId
from .errors import InvalidQuery, NotAllowed
from .grants import MAX_GRANTS, Speaker, TypePattern
from .ids import is_workspace
from .limits import DEFAULT_WORKSPACE

BCRYPT_HASH: Final = r"^\$2[aby]\$\d{2}\$[./A-Za-z0-9]{53}$"
"""Pattern of a password hash for nats-server."""
_WORKSPACE_FIX: Final = "use 1 to 64 of A-Z a-z 0-9 _ -, not starting with _, or leave it out"


class Role(StrEnum):
    """The rights of a token; matched exactly, case included."""

    OWNER = "OWNER"
    ADMIN = "ADMIN"
    LEAD = "LEAD"
    AGENT = "AGENT"

    @property
    def administers(self) -> bool:
        """Whether the role may administer its workspace: priorities, control types, erasure, rebuild."""
        return self in (Role.OWNER, Role.ADMIN)


class Principal(BaseModel):
    """The rights and the binding of a token.

    ``workspace_id`` None means all workspaces (OWNER only); such a caller names the workspace in each request. AGENT
    and LEAD are bound to an agent; LEAD also to a crew. ``may_publish`` and ``speaks_for`` are grants beyond the role
    (``schemas.core.grants``). ``expires_ms`` is when the token expires, milliseconds since the epoch.
    ``person`` is the name of the person who signed in with a password; ``token_id`` is then the id of the account.
    """

    model_config = ConfigDict(frozen=True)

    token_id: str
    role: Role
    workspace_id: WorkspaceId | None
    crew_id: Id | None = None
    agent_id: Id | None = None
    may_publish: tuple[TypePattern, ...] = Field(default=(), max_length=MAX_GRANTS)
    speaks_for: tuple[Speaker, ...] = Field(default=(), max_length=MAX_GRANTS)
    expires_ms: int | None = None
    person: str | None = None

    @property
    def actor(self) -> str:
        """The ``actor_id`` of decisions: the name of the person who signed in, else the id of the token."""
        return self.token_id if self.person is None else self.person

    @model_validator(mode="after")
    def _is_bound(self) -> Principal:
        if self.workspace_id is None and self.role is not Role.OWNER:
            raise ValueError("only an OWNER token may be for all workspaces")
        if not self.role.administers and self.agent_id is None:
            raise ValueError(f"a token of role {self.role.value} needs an agent_id")
        if self.role is Role.LEAD and self.crew_id is None:
            raise ValueError("a token of role LEAD needs a crew_id")
        return self

    def workspace(self, workspace_id: str | None) -> str:
        """The workspace of a request: ``workspace_id`` if given, else the token's (``default`` if it is for all workspaces).

        Raises:
            NotAllowed: If the request names another workspace than the token's.
            InvalidQuery: If the name is empty or not valid.
        """
        if workspace_id == "":
            raise InvalidQuery("workspace_id is empty", hint=_WORKSPACE_FIX, field="workspace_id")
        if self.workspace_id is not None:
            if workspace_id not in (None, self.workspace_id):
                raise NotAllowed(
                    f"the token is for workspace {self.workspace_id}, the request names another",
                    hint="leave the workspace out, or use a token of that workspace",
                    field="workspace_id",
                )
            return self.workspace_id
        if workspace_id is None:
            return DEFAULT_WORKSPACE
        if not is_workspace(workspace_id):
            raise InvalidQuery("workspace_id is not valid", hint=_WORKSPACE_FIX, field="workspace_id")
        return workspace_id

    def workspace_or_all(self, workspace_id: str | None) -> str | None:
        """Like ``workspace``, but a token for all workspaces gets None (all) if the request names no workspace."""
        return None if self.workspace_id is None and workspace_id is None else self.workspace(workspace_id)


# The publisher of an entry, as the journal records it.


_OWNER, _ADMIN = Role.OWNER, Role.ADMIN
_AGENT: Final = "agent:"
_TOKEN: Final = "token:"
_PUBLISHER: Final = re.compile(r"(?:agent|token):[A-Za-z0-9_-]{1,64}\Z")
UNRECORDED: Final = "unrecorded"
"""The publisher of entries that older versions published without recording it; all these entries count as published by
the same unknown publisher.
"""
OPERATOR: Final = "an operator"
"""Author of an entry that an OWNER's or ADMIN's token published without naming an agent."""


def publisher_of(principal: Principal) -> str:
    """The publisher that is recorded with an entry that this token publishes."""
    role, agent_id = principal.role, principal.agent_id
    if role is _OWNER or role is _ADMIN or agent_id is None:  # same result as ``administers``, at a third of the cost
        return _TOKEN + principal.token_id
    return _AGENT + agent_id


@lru_cache(maxsize=4_096)
def publisher_in(header: str | None) -> str | None:
    """The publisher in a header; None if the header is absent or malformed."""
    return header if header is not None and _PUBLISHER.match(header) else None


def is_publisher(publishers: Sequence[str], agent_id: str) -> bool:
    """Whether all publishers are tokens of the agent."""
    return list(publishers) == [_AGENT + agent_id]


def author_shown(publisher: str, agent_id: str | None) -> str:
    """The author of an entry, for people and prompts: the agent, and the publisher if that is not the agent itself.

    Args:
        publisher: The publisher, or ``UNRECORDED``.
        agent_id: The agent that the entry names.
    """
    if publisher == UNRECORDED:
        return f"{agent_id or 'unknown'} (publisher not recorded)"
    if publisher.startswith(_AGENT):
        return publisher.removeprefix(_AGENT)
    return OPERATOR if agent_id is None else f"{agent_id} (by {OPERATOR})"

"""Whose token published an entry, as the journal records it.

Why: ``agent_id`` and ``actor_id`` of an entry are text that a client with an OWNER's or ADMIN's token chooses freely, so
they do not show whether two entries come from two sources. The publisher comes from the token alone: the agent to which an
AGENT or LEAD token is bound (two tokens of one agent are one publisher, over HTTP and NATS alike), else the token itself.

Invariant: pure; a publisher is ``agent:<id>`` or ``token:<id>``, both of ``A-Z a-z 0-9 _ -``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from ..principal import Principal, Role

_OWNER, _ADMIN = Role.OWNER, Role.ADMIN
_AGENT: Final = "agent:"
_TOKEN: Final = "token:"
_PUBLISHER: Final = re.compile(r"(?:agent|token):[A-Za-z0-9_-]{1,64}\Z")
UNRECORDED: Final = "unrecorded"
"""Stands for the publishers of entries of older versions: all of them are one publisher that is not known."""
OPERATOR: Final = "an operator"
"""How the author of an entry is named that an OWNER's or ADMIN's token published for no agent."""


def publisher_of(principal: Principal) -> str:
    """The publisher of what a token publishes."""
    role, agent_id = principal.role, principal.agent_id
    if role is _OWNER or role is _ADMIN or agent_id is None:  # as ``administers``, at a third of its cost
        return _TOKEN + principal.token_id
    return _AGENT + agent_id


@lru_cache(maxsize=4_096)
def publisher_in(header: str | None) -> str | None:
    """The publisher that a header names; None if it is absent or not of the form."""
    return header if header is not None and _PUBLISHER.match(header) else None


def is_publisher(publishers: Sequence[str], agent_id: str) -> bool:
    """Whether an agent's own tokens are the only publisher."""
    return list(publishers) == [_AGENT + agent_id]


def author_shown(publisher: str, agent_id: str | None) -> str:
    """The author of an entry for people and prompts: the agent, and who spoke for it if that was not the agent itself.

    Args:
        publisher: The publisher, or ``UNRECORDED``.
        agent_id: The agent that the entry names.
    """
    if publisher == UNRECORDED:
        return f"{agent_id or 'unknown'} (publisher not recorded)"
    if publisher.startswith(_AGENT):
        return publisher.removeprefix(_AGENT)
    return OPERATOR if agent_id is None else f"{agent_id} (by {OPERATOR})"

"""Which entries compaction archives, which text the archive keeps (contract §11), and who is the author of an entry.

Invariant: the archived types are noise in the catalogue, are never embedded and are not turns of conversation, so they
are in no hot index and have no vectors (a test).
"""

from __future__ import annotations

from typing import Final

TYPES: Final = (
    "container.metrics",
    "exec.output_chunk",
    "llm.call",
    "network.port_closed",
    "network.port_opened",
)
AGE_DAYS: Final = 30
"""Minimum age of archived entries in days, by ``ts``."""
LEAST_BUCKET: Final = 10
"""Minimum number of entries of one crew, UTC day and type to archive; fewer stay in the table of entries."""
SUMMARY_CHARS: Final = 200
PAYLOAD_CHARS: Final = 400
"""Maximum length of an archived payload's JSON text, in characters."""
RUN_ENTRIES: Final = 100_000
"""Maximum number of entries that one sweep archives, the oldest days first; the next sweep continues."""


# The author of an entry: its actor, compared with its agent and with the authors of other entries.


USER_MESSAGE: Final = "chat.user_message"
AGENT_RESPONSE: Final = "chat.agent_response"


def is_agent_itself(agent_id: str | None, actor_type: str, actor_id: str | None) -> bool:
    """Whether the actor of an entry is its agent."""
    return agent_id is not None and actor_type == "agent" and actor_id in (None, agent_id)


def author_of(actor_type: str, actor_id: str | None) -> str:
    """The actor as one text, ``agent:ada``; two entries have one author if their texts are equal."""
    return f"{actor_type}:{actor_id or ''}"


def is_user(author: str) -> bool:
    """Whether an author, as ``author_of`` writes it, is a user."""
    return author.startswith("user:")


def speaks_for(agent_id: str | None, of: str | None) -> bool:
    """Whether what an entry says retires what entries of agent ``of`` say: it is of that agent, or an operator's of none."""
    return agent_id is None or agent_id == of


def is_by_operator(agent_id: str | None, entry_type: str, actor_type: str) -> bool:
    """Whether only an OWNER or ADMIN, or a token with a grant from them, can have published the entry.

    An agent's token publishes entries of its own agent; it may publish as a user only in ``chat.user_message``.
    """
    return agent_id is None or (actor_type == "user" and entry_type != USER_MESSAGE)

"""Compares the actor of an entry with its agent."""

from __future__ import annotations


def is_agent_itself(agent_id: str | None, actor_type: str, actor_id: str | None) -> bool:
    """Whether the actor of an entry is its agent."""
    return agent_id is not None and actor_type == "agent" and actor_id in (None, agent_id)

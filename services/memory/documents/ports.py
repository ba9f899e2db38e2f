"""The ports of the use-cases of documents.

Invariant: they publish through ``DocumentPublisher`` alone; the registry decides whether an agent has a memory.
"""

from __future__ import annotations

from typing import Protocol

from ....schemas.errors import NotAllowed
from ....schemas.ports import Published
from ....schemas.principal import Principal
from ...desk import Caller
from ...journal.publishing.atomic import EncodedMessage


class DocumentPublisher(Protocol):
    """``publishing.writer.Writer``, as far as documents are written."""

    async def post(self, message: EncodedMessage) -> Published:
        """Publish together with what others publish now."""
        ...

    async def post_expecting(self, message: EncodedMessage, last_seq: int) -> Published:
        """Publish if ``last_seq`` is the last message of the subject.

        Raises:
            WrongLastSequence: If it is not. After a lost ack, the last message may be this one.
        """
        ...


class Enabled(Protocol):
    """``memory.agents.Agents``, as far as it says which agents have a memory."""

    async def memory_enabled(self, workspace_id: str, agent_id: str) -> bool | None:
        """Whether the agent's memory is on; None if the agent is not registered."""
        ...

    async def enable_on_first_write(self, principal: Principal, workspace_id: str, agent_id: str) -> bool:
        """Whether the memory of the token's agent is on; one that is not registered is registered with its memory on."""
        ...


async def check_enabled(enabled: Enabled, caller: Caller) -> None:
    """Refuse an agent whose memory is off; operators always pass.

    Raises:
        NotAllowed: If the memory of the token's agent is off.
    """
    agent_id = caller.principal.agent_id
    if not caller.administers and agent_id is not None:
        _refuse(agent_id, await enabled.memory_enabled(caller.workspace_id, agent_id))


async def enable_writer(enabled: Enabled, caller: Caller) -> None:
    """``check_enabled`` before a write that is permitted: an agent that is not registered is registered.

    Raises:
        NotAllowed: If the memory of the token's agent is off.
    """
    agent_id = caller.principal.agent_id
    if not caller.administers and agent_id is not None:
        _refuse(agent_id, await enabled.enable_on_first_write(caller.principal, caller.workspace_id, agent_id))


def _refuse(agent_id: str, state: bool | None) -> None:
    if state is False:
        raise NotAllowed(
            f"the memory of agent {agent_id} is off",
            hint=f"an OWNER or ADMIN turns it on: crew-journal agent update {agent_id} --memory",
        )

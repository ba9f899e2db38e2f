"""The ports of the use-cases of documents.

Invariant: documents are read, written and searched only through ``DocumentStore``; ``addressing`` has checked every
request to a store; the registry decides whether an agent has a memory.
"""

from __future__ import annotations

from typing import Protocol

from ...schemas.core.errors import NotAllowed
from ...schemas.core.ports import Published
from ...schemas.core.principal import Principal
from ...schemas.documents.operations import (
    DocumentAnswer,
    DocumentSearchAnswer,
    DocumentSearchRequest,
    DocumentWrittenAnswer,
)
from ..desk import Caller
from ..journal.publishing.acks import EncodedMessage
from .addressing import DocumentAddress
from .drafts import Draft


class DocumentStore(Protocol):
    """A store of documents: the journal, files, another service, or a provider of another package.

    Every method may be called concurrently. Errors are ``DocumentError``, ``NotAllowed``, ``Unavailable`` and their
    subclasses; the journal also raises ``NotFound`` and ``VersionGone``.
    """

    async def read(
        self, caller: Caller, address: DocumentAddress, version: int | None = None, as_of: int | None = None
    ) -> DocumentAnswer:
        """The current text, empty if never written; or the text of a version, or the text as of a sequence.

        A text that the scanners block is replaced by a notice; the journal shows it to operators.
        """
        ...

    async def write(self, caller: Caller, draft: Draft) -> DocumentWrittenAnswer:
        """Replace a document's text, restore one, or append to it; returns once it is durable."""
        ...

    async def retract(self, caller: Caller, draft: Draft) -> DocumentWrittenAnswer:
        """Retract a document, which then reads as empty; ``duplicate`` if there was no text."""
        ...

    async def search(self, caller: Caller, request: DocumentSearchRequest) -> DocumentSearchAnswer:
        """The best matching chunks of the documents that the caller may read."""
        ...

    async def labels(self, caller: Caller, owner: str) -> tuple[str, ...]:
        """The labels of an owner's documents that have a text, sorted."""
        ...

    async def trouble(self, caller: Caller) -> str | None:
        """The problem of the store, for health; None if it works."""
        ...


class DocumentPublisher(Protocol):
    """The part of ``publishing.writer.Writer`` that writes documents."""

    async def post(self, message: EncodedMessage) -> Published:
        """Publish together with other current messages."""
        ...

    async def post_expecting(self, message: EncodedMessage, last_seq: int) -> Published:
        """Publish if ``last_seq`` is the last message of the subject.

        Raises:
            WrongLastSequence: If it is not the last. After a lost ack, the last message may be this one.
        """
        ...


class Enabled(Protocol):
    """The part of ``services/access/agents.Agents`` that knows which agents have a memory."""

    async def memory_enabled(self, workspace_id: str, agent_id: str) -> bool | None:
        """Whether the agent's memory is on; None if the agent is not registered."""
        ...

    async def enable_on_first_write(self, principal: Principal, workspace_id: str, agent_id: str) -> bool:
        """Whether the memory of the token's agent is on; an unregistered agent is registered with its memory on."""
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
    """``check_enabled`` before a permitted write; an unregistered agent is registered.

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

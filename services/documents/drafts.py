"""A write before it is stored.

Invariant: ``write_id`` identifies the write permanently; the message id is derived from it, so the broker stores the
write once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from ...schemas.core.envelope import DocumentWritten
from ...schemas.core.errors import EmptyContent, FieldProblem, InvalidMode, InvalidRequest, NotAllowed, WriteIdTaken
from ...schemas.core.ids import uuid7_hex
from ...schemas.core.ports import Published
from ...schemas.core.principal import Principal
from ...schemas.documents.events import DocumentAction, encode_document
from ...schemas.documents.operations import (
    DocumentAnswer,
    DocumentSearchAnswer,
    DocumentSearchRequest,
    DocumentWrittenAnswer,
)
from ...schemas.documents.tables import VersionRow
from ..desk import Caller
from ..journal.publishing import EncodedMessage
from .addressing import DocumentAddress

MODES: Final = {"replace": DocumentAction.REPLACE, "append": DocumentAction.APPEND}
"""The modes of a write."""


def mint_write_id() -> str:
    """A new write id: ``w_`` and a UUIDv7."""
    return "w_" + uuid7_hex()


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A write. By default, it comes from the API, replaces the whole text and has a new write id.

    Attributes:
        address: The document.
        content: The text; empty for a retraction.
        source: Origin of the write (``schemas/documents/events``).
        given_id: Whether the write id is the caller's.
        expected_seq: The version that a replacement expects; None for the current one.
        expected_sha256: SHA-256 of the text that a replacement expects; None for the current one.
        compared_end: The part of the content, after the time, by which two writes with the same id are compared; None
            to compare the whole content.
    """

    address: DocumentAddress
    content: str = ""
    action: DocumentAction = DocumentAction.REPLACE
    source: str = "api"
    write_id: str = field(default_factory=mint_write_id)
    given_id: bool = False
    expected_seq: int | None = None
    expected_sha256: str | None = None
    data_subject_id: str | None = None
    derived_from: tuple[str, ...] = ()
    reason: str = ""
    compared_end: str | None = None

    @property
    def identity(self) -> tuple[str, str]:
        """Workspace and write id, which identify the write permanently."""
        return self.address.workspace_id, self.write_id

    @property
    def appends(self) -> bool:
        """Whether the write appends to the text instead of replacing it."""
        return self.action is DocumentAction.APPEND

    def message(self, caller: Caller) -> EncodedMessage:
        """The message to publish."""
        actor_type, actor_id = caller.acts_as
        event = DocumentWritten(
            seq=0,
            workspace_id=self.address.workspace_id,
            owner=self.address.owner,
            tier=self.address.tier,
            key=self.address.key,
            action=self.action.value,
            content=self.content,
            source=self.source,
            write_id=self.write_id,
            actor_type=actor_type.value,
            published_ms=0,
            actor_id=actor_id,
            data_subject_id=self.data_subject_id,
            derived_from=self.derived_from,
            reason=self.reason,
        )
        return EncodedMessage.of(encode_document(event))

    def same(self, version: VersionRow | None) -> VersionRow | None:
        """The stored write with this id, which must be the same write; a swept text is not compared.

        Raises:
            WriteIdTaken: If the id belongs to another write.
        """
        if version is None or self._is(version):
            return version
        raise WriteIdTaken(
            f"the write id {self.write_id} belongs to another write, at {version.seq}",
            hint="give each write an id of its own, or leave write_id out",
            field="write_id",
        )

    def _is(self, version: VersionRow) -> bool:
        address = self.address
        if (version.owner, version.tier, version.action) != (address.owner, address.tier, self.action.value):
            return False
        if self.compared_end is not None:
            return version.piece is None or version.piece.endswith(self.compared_end)
        return version.doc_key == address.key and version.piece in (None, self.content)


def drafted(address: DocumentAddress, mode: str, content: str, source: str, write_id: str | None, **more: Any) -> Draft:
    """A write of a request.

    Args:
        address: The document; ``addressing.check_may_write`` must have allowed it.
        mode: ``replace`` or ``append``.
        content: The text.
        source: Origin of the write (``schemas/documents/events``).
        write_id: The caller's id of the write; None for a random id.
        more: Further attributes of the draft.

    Raises:
        InvalidMode: If there is no such mode.
        InvalidRequest: If an append names a version.
        EmptyContent: If the text is blank.
    """
    action = MODES.get(mode)
    if action is None:
        raise InvalidMode(f"{mode[:32]!r} is not a mode", hint="use replace or append", field="mode")
    for name in ("expected_seq", "expected_sha256"):
        if action is DocumentAction.APPEND and more.get(name) is not None:
            fix = "leave it out: an append never conflicts"
            raise InvalidRequest((FieldProblem(name, "goes with mode=replace", fix),))
    return Draft(
        address=address,
        action=action,
        content=text_of(content),
        source=source,
        write_id=write_id or mint_write_id(),
        given_id=write_id is not None,
        **more,
    )


def text_of(text: str, name: str = "content") -> str:
    """The text of a request.

    Raises:
        EmptyContent: If it is blank.
    """
    if not text.strip():
        raise EmptyContent(f"the {name} is empty", hint="to empty a document, retract it", field=name)
    return text


# The ports of the use-cases of documents.
#
# Invariant: documents are read, written and searched only through ``DocumentStore``; ``addressing`` has checked every
# request to a store; the registry decides whether an agent has a memory.


class DocumentStore(Protocol):
    """A store of documents: the journal, files, another service, or a provider of another package.

    Every method may be called concurrently. Errors are ``DocumentError``, ``NotAllowed``, ``Unavailable`` and their
    subclasses; the journal also raises ``NotFound`` and ``VersionGone``.
    """

    async def read(self, caller: Caller, address: DocumentAddress, version: int | None = None) -> DocumentAnswer:
        """The current text, empty if never written; or the text of a version.

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
    """The part of ``services/journal/publishing.Writer`` that writes documents."""

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
    """The part of ``services/access/use_cases.Agents`` that knows which agents have a memory."""

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

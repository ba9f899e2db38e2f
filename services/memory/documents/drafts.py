"""A write before it is published.

Invariant: ``write_id`` names the write for ever; its message id follows from it, so the broker stores it once.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....schemas.events.documents import DocumentAction, encode_document
from ....schemas.events.envelope import DocumentWritten
from ....schemas.ids import uuid7_hex
from ....schemas.views.documents import VersionRow
from ...desk import Caller
from ...journal.publishing.atomic import EncodedMessage
from .addressing import Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A write.

    Attributes:
        given_id: The caller's write id; None to mint one.
        expected_seq: The version that a replace is for; None for the present one.
        expected_sha256: SHA-256 of the text that a replace is for; None for the present one.
        said: The end of the content, if two writes are the same when it is: without the time before it.
    """

    address: Address
    action: DocumentAction
    content: str
    source: str
    write_id: str
    given_id: bool = False
    expected_seq: int | None = None
    expected_sha256: str | None = None
    data_subject_id: str | None = None
    derived_from: tuple[str, ...] = ()
    reason: str = ""
    said: str | None = None

    @property
    def appends(self) -> bool:
        """Whether it adds to the text instead of giving it."""
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

    def is_same_as(self, version: VersionRow) -> bool:
        """Whether a stored write is this one; a text that was swept is not compared."""
        address = self.address
        if (version.owner, version.tier, version.action) != (address.owner, address.tier, self.action.value):
            return False
        if self.said is not None:
            return version.piece is None or version.piece.endswith(self.said)
        return version.doc_key == address.key and version.piece in (None, self.content)


def api_draft(address: Address, action: DocumentAction, content: str, expected_seq: int | None) -> Draft:
    """A write over the API under an id of its own."""
    return Draft(
        address=address,
        action=action,
        content=content,
        source="api",
        write_id=mint_write_id(),
        expected_seq=expected_seq,
    )


def mint_write_id() -> str:
    """A new write id: ``w_`` and a UUIDv7."""
    return "w_" + uuid7_hex()

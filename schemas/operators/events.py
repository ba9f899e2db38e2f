"""Payloads of operator models and peer cards: facts that people stated about themselves, and requests to forget them.

Invariant: a person is named by a keyed hash alone; the key lies outside the journal, and ``key_id`` identifies the key.
Consent is ``consent.changed``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, StringConstraints

from ..core.entry import Id
from ..core.payload import STORED, ControlPayload, EntryTypeInfo, PublisherKind
from ..entries.events import SubjectHash

KeyId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
"""Names the key of the hash (``schemas/operators/rules.key_id``)."""
FactKey = Literal[
    "role", "owns", "constraint", "process", "prefers", "tooling", "timezone", "language", "contact"
]  # contract §13
VALUE_CHARS = 160
QUOTE_CHARS = 600


class StatedFact(BaseModel):
    """A fact that a person stated about themselves.

    Attributes:
        quote: Their own words, verbatim.
        entry_id: The turn that holds the quote.
        seq: Sequence of that turn; a fact ends when its key is forgotten at a later sequence.
    """

    model_config = STORED
    key: FactKey
    value: str = Field(min_length=1, max_length=VALUE_CHARS)
    quote: str = Field(min_length=1, max_length=QUOTE_CHARS)
    entry_id: Id
    seq: int = Field(ge=1)


class OperatorProfileUpdated(ControlPayload):
    """All facts about a person that count now: their model, or an agent's card of them.

    Attributes:
        agent_id: The agent whose card it is; None for the model.
        crew_id: The crew with which the person talked most.
        messages: Number of the person's turns in the period of the sweep.
        model: The language model that proposed facts; None if rules did.
    """

    ENTRY_TYPE = "operator.profile_updated"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.RESERVED, noise=True, private=True)
    subject_hash: SubjectHash
    agent_id: Id | None = None
    crew_id: Id | None = None
    facts: Annotated[tuple[StatedFact, ...], Field(min_length=1, max_length=32)]
    messages: int = Field(default=0, ge=0)
    model: str | None = Field(default=None, max_length=96)


class OperatorForgotten(ControlPayload):
    """One key of a person, or all, is forgotten in their model and in every card. Earlier turns no longer count for it."""

    ENTRY_TYPE = "operator.forgotten"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.RESERVED)
    subject_hash: SubjectHash
    key: FactKey | None = None


class OperatorDeleted(ControlPayload):
    """A person was deleted: model, cards and consent, unless it was withdrawn. Earlier turns no longer count."""

    ENTRY_TYPE = "operator.deleted"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.RESERVED)
    subject_hash: SubjectHash


class OperatorNamed(ControlPayload):
    """A second name of a person was declared or removed.

    The consent of the person counts for all names; if consent was withdrawn under the name, it is withdrawn for the
    person. Earlier turns under either name no longer count.

    Attributes:
        subject_hash: Hash of the name.
        person_hash: Hash of the person.
        declared: True if the name was declared, False if it was removed.
    """

    ENTRY_TYPE = "operator.named"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.RESERVED)
    subject_hash: SubjectHash
    person_hash: SubjectHash
    declared: bool = True
    key_id: KeyId | None = None


class OperatorKeyReplaced(ControlPayload):
    """The key of the hash was lost, and another is used: models, consents and names under earlier keys no longer count.

    Recorded in the workspace of the system.
    """

    ENTRY_TYPE = "operator.key_replaced"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.RESERVED)
    key_id: KeyId

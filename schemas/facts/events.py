"""Payloads of the knowledge graph: facts that were asserted and ended, and names of entities.

Invariant: the command computes all ids and dates; a fold computes none.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, Field

from ..core.entry import Id
from ..core.payload import STORED, ControlPayload, EntryTypeInfo, PublisherKind
from .names import GENERAL_TYPE, normal_date

MAX_NAME: Final = 256
MAX_ALIASES: Final = 50
MAX_REFERENCE: Final = 256
MAX_REASON: Final = 1_000
MAX_FACT_TEXT: Final = 2_000
MAX_HALF_LIFE_HOURS: Final = 1_000_000.0

FactDate = Annotated[str, AfterValidator(normal_date)]
"""A date, or a UTC time to the second."""


class FactType(StrEnum):
    """How fast a fact goes stale (``schemas/context/salience``)."""

    PERMANENT = "permanent"
    STABLE = "stable"
    DEFAULT = "default"
    VOLATILE = "volatile"


class FactEntity(BaseModel):
    """One end of a fact: the entity's id, its name as written, and its type if it was given."""

    model_config = STORED
    entity_id: str
    name: str = Field(min_length=1, max_length=MAX_NAME)
    type: str = GENERAL_TYPE


class FactAsserted(ControlPayload):
    """A fact was asserted: ``subject predicate object``, valid from and to, both included; null is open.

    ``source_drawer_id`` and ``source_entry_id`` name its source.

    Attributes:
        namespace: Facts of different namespaces never contradict each other; empty for facts of the knowledge graph.
        text: The fact in words; None if the text is subject, predicate and object.
        fact_type: Determines the half-life, unless ``half_life_hours`` is set.
        single_valued: Whether the subject has one value of the predicate at a time.
    """

    ENTRY_TYPE = "fact.asserted"
    fact_id: Id
    subject: FactEntity
    predicate: str = Field(min_length=1, max_length=MAX_NAME)
    object: FactEntity
    valid_from: FactDate | None = None
    valid_to: FactDate | None = None
    confidence: float = Field(default=1.0, ge=0.0, le=1.0, allow_inf_nan=False)
    source_drawer_id: str | None = Field(default=None, max_length=MAX_REFERENCE)
    source_entry_id: Id | None = None
    namespace: str = Field(default="", max_length=MAX_NAME)
    text: str | None = Field(default=None, min_length=1, max_length=MAX_FACT_TEXT)
    fact_type: FactType = FactType.DEFAULT
    half_life_hours: float | None = Field(default=None, gt=0.0, le=MAX_HALF_LIFE_HOURS, allow_inf_nan=False)
    single_valued: bool = False


class FactEnded(ControlPayload):
    """Open facts were ended; they stay in the graph with ``ended`` as the inclusive end of their validity."""

    ENTRY_TYPE = "fact.ended"
    fact_ids: tuple[Id, ...] = Field(min_length=1)
    ended: FactDate
    reason: str = Field(default="", max_length=MAX_REASON)


class FactVerified(ControlPayload):
    """A fact was checked and holds; its freshness is 1 again. ``confidence`` is the new one; null does not change it.

    Attributes:
        source_drawer_id: A drawer that states the fact again; it becomes the fact's source.
    """

    ENTRY_TYPE = "fact.verified"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.RESERVED)
    fact_id: Id
    confidence: float | None = Field(default=None, ge=0.0, le=1.0, allow_inf_nan=False)
    note: str = Field(default="", max_length=MAX_REASON)
    source_drawer_id: str | None = Field(default=None, max_length=MAX_REFERENCE)


class VerificationRequested(ControlPayload):
    """A check of facts is requested: because they are stale, contradict each other, or someone asked for it."""

    ENTRY_TYPE = "fact.verification_requested"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.RESERVED)
    fact_ids: tuple[Id, ...] = Field(min_length=1, max_length=1_000)
    cause: Literal["stale", "conflict", "asked"]
    note: str = Field(default="", max_length=MAX_REASON)


class FactConflictFound(ControlPayload):
    """Two facts that hold now contradict each other; both stay.

    Attributes:
        fact_ids: The two, in order.
        namespace: Namespace of both facts.
        subject: Name of the entity that both facts describe.
        kind: ``values`` if a single-valued predicate has two values; ``polarity`` if one negates the other.
    """

    ENTRY_TYPE = "fact.conflict_found"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.RESERVED)
    fact_ids: tuple[Id, Id]
    namespace: str = ""
    subject: str
    kind: Literal["values", "polarity"]


class EntityNamed(ControlPayload):
    """Name and type of an entity were set, and aliases were added or removed."""

    ENTRY_TYPE = "kg.entity_named"
    entity: FactEntity
    aliases: tuple[FactEntity, ...] = Field(default=(), max_length=MAX_ALIASES)
    dropped_aliases: tuple[FactEntity, ...] = Field(default=(), max_length=MAX_ALIASES)

"""Payloads of the knowledge graph: facts that were asserted and ended, and what entities are called.

Invariant: ids and dates are those that the command found; a fold computes none of them.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, Field

from ..entry import Id
from ..facts import GENERAL_TYPE, normal_date
from .payload import STORED, ControlPayload

MAX_NAME: Final = 256
MAX_ALIASES: Final = 50
MAX_REFERENCE: Final = 256
MAX_REASON: Final = 1_000

FactDate = Annotated[str, AfterValidator(normal_date)]
"""A date, or a UTC time to the second."""


class FactEntity(BaseModel):
    """One end of a fact: the entity's id, its name as written, and its type if it was given."""

    model_config = STORED
    entity_id: str
    name: str = Field(min_length=1, max_length=MAX_NAME)
    type: str = GENERAL_TYPE


class FactAsserted(ControlPayload):
    """A fact was asserted: ``subject predicate object``, valid from and to, both included; null is open.

    ``source_drawer_id`` and ``source_entry_id`` say what it was taken from.
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


class FactEnded(ControlPayload):
    """Facts that had no end were ended; they stay and were valid until ``ended``, included."""

    ENTRY_TYPE = "fact.ended"
    fact_ids: tuple[Id, ...] = Field(min_length=1)
    ended: FactDate
    reason: str = Field(default="", max_length=MAX_REASON)


class EntityNamed(ControlPayload):
    """Name and type of an entity were set, and which other names mean it from now on or no longer."""

    ENTRY_TYPE = "kg.entity_named"
    entity: FactEntity
    aliases: tuple[FactEntity, ...] = Field(default=(), max_length=MAX_ALIASES)
    dropped_aliases: tuple[FactEntity, ...] = Field(default=(), max_length=MAX_ALIASES)

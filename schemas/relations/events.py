"""Payloads of the decisions about relations between entries."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ..core.entry import Id
from ..core.payload import ControlPayload, EntryTypeInfo, PublisherKind

Relation = Literal["similar", "supports", "contradicts", "supersedes"]


class RelationAsserted(ControlPayload):
    """A caller asserted a relation between two entries; it overrides what a reactor found."""

    ENTRY_TYPE = "memory.relation_asserted"
    INFO = EntryTypeInfo(group="memory", publisher=PublisherKind.SERVICE, noise=True)
    src_entry_id: Id
    src_seq: int = Field(ge=1)
    dst_entry_id: Id
    dst_seq: int = Field(ge=1)
    relation: Relation
    weight: float = Field(default=1.0, gt=0.0, le=1.0, allow_inf_nan=False)
    reason: str = Field(default="", max_length=1_000)


class RelationRetracted(ControlPayload):
    """A relation was retracted; no reactor restores it."""

    ENTRY_TYPE = "memory.relation_retracted"
    INFO = EntryTypeInfo(group="memory", publisher=PublisherKind.SERVICE, noise=True)
    src_entry_id: Id
    src_seq: int = Field(ge=1)
    dst_entry_id: Id
    dst_seq: int = Field(ge=1)
    relation: Relation
    reason: str = Field(default="", max_length=1_000)

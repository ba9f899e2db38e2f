"""Reads the payloads of control entries as the models of their types, for folds; writes objects for tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import orjson
from pydantic import ValidationError

from ...schemas.catalogue import info_of
from ...schemas.entry import JournalEntry, problems_of
from ...schemas.errors import FoldError
from ...schemas.events.envelope import EntryRecorded
from ...schemas.events.payload import ControlPayload
from ..projection import Batch

P = TypeVar("P", bound=ControlPayload)


def payload_of(event: EntryRecorded, model: type[P]) -> P:
    """The payload of a control entry.

    Raises:
        FoldError: If it is not a valid ``model``; names the fields, never their text.
    """
    try:
        return model.model_validate(event.entry.payload)
    except ValidationError as error:
        fields = ", ".join(sorted({problem.field for problem in problems_of(error)})[:5])
        raise FoldError(f"the payload of {model.ENTRY_TYPE} at {event.seq} is not valid: {fields}") from None


def decisions(batch: Batch, *models: type[P]) -> Iterator[tuple[EntryRecorded, P]]:
    """The control entries of a batch with these payloads, and their payloads, in stream order.

    Raises:
        FoldError: At an entry whose payload is not valid.
    """
    by_type = {model.ENTRY_TYPE: model for model in models}
    for event in batch.control(*models):
        yield event, payload_of(event, by_type[event.entry.entry_type])


def shown_payload(entry: JournalEntry) -> dict[str, Any]:
    """The payload as lists and searches have it: empty if its type is private."""
    return {} if info_of(entry.entry_type).private else entry.payload


def json_text(value: Mapping[str, Any]) -> str:
    """``value`` as compact JSON; unlike orjson, with integers beyond 64 bits."""
    if not value:
        return "{}"
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

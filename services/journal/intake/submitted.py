"""Handles an append request from HTTP or NATS: takes one entry or a list and returns the receipts.

Invariant: HTTP and NATS accept the same requests and give the same answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ....schemas.core.errors import EntryTooLarge, InvalidQuery
from ....schemas.core.limits import MAX_BATCH
from ....schemas.core.principal import Principal
from .append import Appended


class Appender(Protocol):
    """The part of ``services.journal.intake.append.Journal`` that agents use."""

    async def append(self, principal: Principal, submission: Mapping[str, Any]) -> Appended:
        """Append one entry; returns after the ack."""
        ...

    async def append_batch(self, principal: Principal, submissions: Sequence[Mapping[str, Any]]) -> list[Appended]:
        """Append entries, all or nothing; returns after the acks."""
        ...


async def append_submitted(journal: Appender, principal: Principal, submitted: Any) -> list[dict[str, object]]:
    """Append one entry or a list of up to 1,000, all or nothing.

    Args:
        journal: Appends.
        principal: Who submits.
        submitted: The parsed body, from ``parse_json``.

    Returns:
        ``{"id", "seq"}`` of each entry, with ``"duplicate": true`` if the journal already held it, and ``"warnings"``
        if any.

    Raises:
        InvalidQuery: If the list is empty.
        EntryTooLarge: If it is too long.
        CrewJournalError: As in ``Journal.append`` and ``append_batch``.
    """
    if not isinstance(submitted, list):
        return [_receipt(await journal.append(principal, submitted))]
    if not submitted:
        raise InvalidQuery("the batch is empty", hint="send at least one entry", field="entries")
    if len(submitted) > MAX_BATCH:
        raise EntryTooLarge(
            f"the batch has {len(submitted)} entries, at most {MAX_BATCH} are allowed",
            hint="send it in parts",
            field="entries",
        )
    return [_receipt(appended) for appended in await journal.append_batch(principal, submitted)]


def _receipt(appended: Appended) -> dict[str, object]:
    receipt: dict[str, object] = {"id": appended.id, "seq": appended.seq}
    if appended.duplicate:
        receipt["duplicate"] = True
    if appended.warnings:
        receipt["warnings"] = appended.warnings
    return receipt

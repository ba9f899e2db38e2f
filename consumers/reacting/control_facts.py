"""Encodes facts of reactors as control entries.

Invariant: a fact's id and content hash depend on its cause alone. If a reactor runs again and computes different
figures, the fact therefore counts as a repeat, and the first one stays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import orjson

from ...schemas.core import headers as h
from ...schemas.core.derived import OutgoingMessage
from ...schemas.core.entry import ActorType, Priority, Severity
from ...schemas.core.ids import message_id
from ...schemas.core.payload import ControlPayload
from ...schemas.core.subjects import control_subject
from ...schemas.core.timestamps import format_ms

_CONTENT_BYTES: Final = 16


def encode_control(
    workspace_id: str,
    payload: ControlPayload,
    *,
    fact_id: str,
    cause: str,
    reactor: str,
    summary: str,
    severity: Severity = Severity.INFO,
    ts_ms: int | None = None,
    crew_id: str | None = None,
    priority: Priority = Priority.NORMAL,
    refs: Mapping[str, list[str]] | None = None,
    data_subject_id: str | None = None,
) -> OutgoingMessage:
    """A control entry of a reactor as its message.

    Args:
        workspace_id: The workspace.
        payload: What the reactor found or did.
        fact_id: Id of the fact, derived from the cause.
        cause: Id of the entry from which the fact is derived.
        reactor: ``name@version``.
        summary: One line for the reader of the journal.
        severity: Severity of the entry.
        ts_ms: Time of the entry, milliseconds since the epoch; the broker's time if absent.
        crew_id: The crew that the fact concerns.
        priority: Its priority.
        refs: Further referenced ids, in addition to the cause.
        data_subject_id: The person whose personal data this is.
    """
    record: dict[str, Any] = {
        "id": fact_id,
        "workspace_id": workspace_id,
        "entry_type": payload.ENTRY_TYPE,
        "schema_version": payload.VERSION,
        "severity": severity.value,
        "priority": priority.value,
        "actor_type": ActorType.SYSTEM.value,
        "actor_id": reactor,
        "summary": summary,
        "payload": payload.model_dump(mode="json"),
        "refs": {"derived_from": [cause], **(refs or {})},
    }
    if ts_ms is not None:
        record["ts"] = format_ms(ts_ms)
    if crew_id is not None:
        record["crew_id"] = crew_id
    if data_subject_id is not None:
        record["data_subject_id"] = data_subject_id
    identity = message_id(workspace_id, fact_id)
    content = f"{payload.ENTRY_TYPE}\x00{identity}\x00{cause}".encode()
    headers = {
        h.MSG_ID: identity,
        h.ENTRY_ID: fact_id,
        h.CONTENT_HASH: hashlib.blake2b(content, digest_size=_CONTENT_BYTES).hexdigest(),
        h.FORMAT: h.FORMAT_VERSION,
        h.REACTOR: reactor,
        h.DERIVED_FROM: cause,
    }
    return OutgoingMessage(control_subject(workspace_id, payload.ENTRY_TYPE), orjson.dumps(record), headers)

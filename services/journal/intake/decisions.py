"""Builds journal entries from decisions of the service.

A decision (a priority, a token, a parked event) is recorded in the journal and read like any entry. Invariant: these
entries have a control type; clients' entries are never built here.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict, Unpack

from ....schemas.core.entry import ActorType, JournalEntry, Priority, Severity
from ....schemas.core.ids import mint_entry_id
from ....schemas.core.payload import ControlPayload
from ....schemas.core.timestamps import to_ms
from .plain import Accepted
from .submission import content_hash, encode_entry


class DecisionFields(TypedDict, total=False):
    """Optional fields of a decision; ``None`` means absent.

    Attributes:
        entry_id: A deterministic id, so that a repeated decision is recorded once; random if absent.
        actor_type: Type of the actor that decided; the system if absent.
        actor_id: Id of the actor.
        severity: Info if absent.
        crew_id: The crew it concerns.
        agent_id: The agent it concerns.
        trace_id: The run it concerns.
        priority: Its priority; normal if absent.
        refs: Ids of other entries.
    """

    entry_id: str | None
    actor_type: ActorType
    actor_id: str | None
    severity: Severity
    crew_id: str | None
    agent_id: str | None
    trace_id: str | None
    priority: Priority | None
    refs: dict[str, list[str]] | None


def decision_entry(
    workspace_id: str, payload: ControlPayload, summary: str, now: datetime, **fields: Unpack[DecisionFields]
) -> Accepted:
    """The entry that records a decision; its id is random unless given.

    Args:
        workspace_id: The workspace, or ``_system``.
        payload: The decision.
        summary: One line for the reader of the journal.
        now: The server's time, UTC; not part of the content hash, so that the same decision has the same content later.
        **fields: The optional fields.
    """
    record: dict[str, Any] = {
        "workspace_id": workspace_id,
        "entry_type": payload.ENTRY_TYPE,
        "schema_version": payload.VERSION,
        "summary": summary,
        "payload": payload.model_dump(mode="json"),
        "actor_type": ActorType.SYSTEM,
        "severity": Severity.INFO,
    }
    record |= {"id" if name == "entry_id" else name: value for name, value in fields.items() if value is not None}
    content = content_hash(record)
    entry = JournalEntry.model_validate({"id": mint_entry_id(to_ms(now)), **record, "ts": now})
    return encode_entry(entry, content, control=True, given_id="id" in record, publisher=None)

"""Lists a write of a document as an entry ``memory.updated`` with the sequence and id of the write.

Invariant: the entry holds no text of the document, and has no message of its own.
"""

from __future__ import annotations

from typing import Final

from ..entry import ActorType, JournalEntry
from ..events.documents import DocumentAction
from ..events.envelope import DocumentWritten, EntryRecorded
from ..timestamps import from_ms
from .documents import sha256_of
from .tiers import TIERS, Scope, scope_of

UPDATED: Final = "memory.updated"
_DONE: Final = {
    DocumentAction.REPLACE: "written",
    DocumentAction.APPEND: "appended",
    DocumentAction.RESTORE: "restored",
}


def updated_entry(write: DocumentWritten) -> EntryRecorded:
    """The entry of a write: owner of the document, kind and size of the change. It belongs to the owner's agent or crew."""
    scope, name = scope_of(write.owner)
    content = write.content.encode()
    payload = {
        "tier": write.tier,
        "key": write.key,
        "owner": write.owner,
        "action": write.action,
        "source": write.source,
        "bytes": len(content),
        "sha256": sha256_of(write.content),
    }
    entry = JournalEntry(
        id=write.write_id,
        workspace_id=write.workspace_id,
        crew_id=name if scope is Scope.CREW else None,
        agent_id=name if scope is Scope.AGENT else None,
        ts=from_ms(write.published_ms),
        entry_type=UPDATED,
        actor_type=ActorType(write.actor_type),
        actor_id=write.actor_id,
        summary=_summary(write, len(content)),
        payload=payload,
        data_subject_id=write.data_subject_id,
    )
    return EntryRecorded(write.seq, entry, write.published_ms, False, b"", b"", write.published_ms, len(content))


def _summary(write: DocumentWritten, size: int) -> str:
    """``AGENT.md of agent support: 42 bytes appended (api)``."""
    rule = TIERS.get(write.tier)
    label = rule.label_of(write.key) if rule is not None else "/".join(filter(None, (write.tier, write.key)))
    scope, name = scope_of(write.owner)
    owner = "the workspace" if scope is Scope.WORKSPACE else f"{scope} {name}"
    done = _DONE.get(DocumentAction(write.action))
    return f"{label} of {owner}: {'retracted' if done is None else f'{size} bytes {done}'} ({write.source})"

"""Documents as answers: the text or, where the scanners block it, a notice; and how full a document is.

Invariant: text that is blocked reaches no AGENT and no LEAD; pure.
"""

from __future__ import annotations

from typing import Final

from ....schemas.errors import CapExceeded, Quarantined
from ....schemas.operations.documents import DocumentAnswer, DocumentShown, Finding, VersionShown
from ....schemas.rules.assembler import notice_of
from ....schemas.rules.documents import sha256_of
from ....schemas.rules.tiers import TIERS
from ....schemas.timestamps import format_ms
from ....schemas.views.documents import DocumentRow, VersionRow
from ...desk import Caller
from .addressing import Address

CONSOLIDATE: Final = (
    "consolidate current_entries (merge duplicates, drop what is out of date, summarise) "
    "and retry in this turn with mode=replace"
)
_EMPTY: Final = sha256_of("")


def usage(size: int, cap: int) -> str:
    """``3900 of 4000 bytes, 97%``."""
    return f"{size} of {cap} bytes, {size * 100 // cap}%"


def blocked(label: str, finding: str) -> Quarantined:
    """The refusal of a text in which the scanners found ``category/pattern``."""
    category, _, pattern = finding.partition("/")
    return Quarantined(
        f"{label} would hold a possible prompt injection: category={category} pattern={pattern}",
        hint="say it in other words, without instructions to a reader; nothing was written",
        field="content",
    )


def too_large(label: str, tier: str, cap: int, projected: int, current: int, text: str) -> CapExceeded:
    """The refusal of a write after which a document would have ``projected`` bytes; ``text``: what the caller may read."""
    return CapExceeded(
        f"{label} would have {projected} of {cap} bytes; it has {usage(current, cap)}",
        hint=CONSOLIDATE,
        field="content",
        facts={
            "tier": tier,
            "cap_bytes": cap,
            "projected_size": projected,
            "current_size": current,
            "current_entries": text,
            "usage": usage(current, cap),
        },
    )


def shown(caller: Caller, label: str, content: str, finding: str | None) -> str:
    """The text for a caller: a notice in its place if it is blocked and the caller is not an operator."""
    if finding is None or caller.administers:
        return content
    return notice_of(label, finding)


def finding_of(finding: str | None) -> Finding | None:
    """A finding of the scanners, as an answer."""
    if finding is None:
        return None
    category, _, pattern = finding.partition("/")
    return Finding(category=category, pattern=pattern)


def empty_answer(address: Address, view_seq: int) -> DocumentAnswer:
    """A document that was not written."""
    cap = address.rule.cap_bytes
    return DocumentAnswer(
        id=address.label,
        tier=address.tier,
        key=address.key,
        owner=address.owner,
        content="",
        bytes=0,
        cap_bytes=cap,
        usage=None if cap is None else usage(0, cap),
        sha256=_EMPTY,
        seq=0,
        updated_at=None,
        view_seq=view_seq,
    )


def document_answer(caller: Caller, address: Address, row: DocumentRow, view_seq: int) -> DocumentAnswer:
    """The present text of a document."""
    return empty_answer(address, view_seq).model_copy(
        update={
            "content": shown(caller, address.label, row.content, row.finding),
            "bytes": row.bytes,
            "usage": None if address.rule.cap_bytes is None else usage(row.bytes, address.rule.cap_bytes),
            "sha256": row.sha256,
            "seq": row.seq,
            "updated_at": format_ms(row.updated_ms),
            "retracted": row.retracted,
            "quarantined": finding_of(row.finding),
        }
    )


def version_answer(
    caller: Caller, address: Address, version: VersionRow, text: str, finding: str | None, view_seq: int
) -> DocumentAnswer:
    """The text of a version."""
    return empty_answer(address, view_seq).model_copy(
        update={
            "content": shown(caller, address.label, text, finding),
            "bytes": version.bytes,
            "usage": None if address.rule.cap_bytes is None else usage(version.bytes, address.rule.cap_bytes),
            "sha256": version.sha256,
            "seq": version.seq,
            "updated_at": format_ms(version.published_ms),
            "retracted": version.action == "retract",
            "quarantined": finding_of(finding),
        }
    )


def listed(row: DocumentRow) -> DocumentShown:
    """A document in a list."""
    rule = TIERS[row.tier]
    return DocumentShown(
        id=rule.label_of(row.doc_key),
        tier=row.tier,
        key=row.doc_key,
        owner=row.owner,
        bytes=row.bytes,
        cap_bytes=rule.cap_bytes,
        seq=row.seq,
        updated_at=format_ms(row.updated_ms),
        writes=row.writes,
        retracted=row.retracted,
        quarantined=finding_of(row.finding),
    )


def version_shown(row: VersionRow) -> VersionShown:
    """A version in a list."""
    return VersionShown(
        seq=row.seq,
        write_id=row.write_id,
        action=row.action,
        sha256=row.sha256,
        parent_sha256=row.parent_sha256,
        bytes=row.bytes,
        source=row.source,
        actor_type=row.actor_type,
        actor_id=row.actor_id,
        reason=row.reason,
        at=format_ms(row.published_ms),
        gone=row.piece is None,
    )

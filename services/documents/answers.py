"""Builds answers: a document's text or, if the scanners block it, a notice; the result of a write, or its refusal.

Invariant: blocked text never reaches an AGENT or LEAD; pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...schemas.core.errors import CapExceeded
from ...schemas.core.timestamps import format_ms
from ...schemas.documents.operations import (
    DocumentAnswer,
    DocumentShown,
    DocumentWrittenAnswer,
    Finding,
    VersionShown,
)
from ...schemas.documents.rules import SOFT_CAP_PERCENT, TIERS, sha256_of
from ...schemas.documents.tables import DocumentRow, VersionRow
from ...schemas.prompt.assembler import notice_of
from ..desk import Caller
from .addressing import DocumentAddress
from .drafts import Draft

CONSOLIDATE: Final = (
    "consolidate current_entries (merge duplicates, drop what is out of date, summarise) "
    "and retry in this turn with mode=replace"
)
_EMPTY: Final = sha256_of("")


def usage(size: int, cap: int) -> str:
    """``3900 of 4000 bytes, 97%``."""
    return f"{size} of {cap} bytes, {size * 100 // cap}%"


def too_large(
    caller: Caller,
    address: DocumentAddress,
    cap: int,
    projected: int,
    current: int,
    content: str,
    finding: str | None = None,
) -> CapExceeded:
    """The refusal of a write after which a document would have ``projected`` bytes.

    Args:
        caller: Who writes.
        address: The document.
        cap: Maximum bytes of the document.
        projected: Bytes after the write.
        current: Current bytes.
        content: Its current text, which the caller should shorten.
        finding: The scanners' finding in the text.
    """
    return CapExceeded(
        f"{address.label} would have {projected} of {cap} bytes; it has {usage(current, cap)}",
        hint=CONSOLIDATE,
        field="content",
        facts={
            "tier": address.tier,
            "cap_bytes": cap,
            "projected_size": projected,
            "current_size": current,
            "current_entries": shown(caller, address.label, content, finding),
            "usage": usage(current, cap),
        },
    )


def shown(caller: Caller, label: str, content: str, finding: str | None) -> str:
    """The text for a caller; a notice instead if the text is blocked and the caller is not an operator."""
    if finding is None or caller.administers:
        return content
    return notice_of(label, finding)


def finding_of(finding: str | None) -> Finding | None:
    """A finding of the scanners, as an answer."""
    if finding is None:
        return None
    category, _, pattern = finding.partition("/")
    return Finding(category=category, pattern=pattern)


def written_answer(
    draft: Draft, seq: int, size: int, *, duplicate: bool = False, readable: bool = True
) -> DocumentWrittenAnswer:
    """The answer to a write that is stored.

    Args:
        draft: The write.
        seq: Its sequence; 0 if the store has none.
        size: Bytes of the document after it.
        duplicate: Whether the write id was already used, so that nothing was written.
        readable: Whether the text can already be read and found.
    """
    address, cap = draft.address, draft.address.rule.cap_of(draft.source)
    return DocumentWrittenAnswer(
        id=address.label,
        tier=address.tier,
        key=address.key,
        owner=address.owner,
        write_id=draft.write_id,
        seq=seq,
        bytes_written=0 if duplicate else len(draft.content.encode()),
        bytes=size,
        cap_bytes=cap,
        cap_pct=size * 100 // cap,
        search_index_updated=readable,
        duplicate=duplicate,
    )


def is_nearly_full(answer: DocumentWrittenAnswer) -> bool:
    """Whether the answer carries the text and asks to shorten it."""
    return answer.cap_pct >= SOFT_CAP_PERCENT


def with_text(answer: DocumentWrittenAnswer, text: str | None) -> DocumentWrittenAnswer:
    """The answer; for a nearly full document, with its text and the request to shorten it."""
    if not is_nearly_full(answer):
        return answer
    full = usage(answer.bytes, answer.cap_bytes)
    warning = f"{answer.id} is nearly full ({full}): {CONSOLIDATE}"
    return answer.model_copy(update={"usage": full, "current_entries": text, "warning": warning})


def warned(answer: DocumentWrittenAnswer, warning: str | None) -> DocumentWrittenAnswer:
    """The answer with one more warning, before its own."""
    if warning is None:
        return answer
    return answer.model_copy(update={"warning": "; ".join(filter(None, (warning, answer.warning)))})


@dataclass(frozen=True, slots=True)
class StoredWrite:
    """A write that is stored in the journal.

    Attributes:
        seq: Its sequence.
        duplicate: Whether it was stored before, so that nothing was written now.
        readable: Whether the views have folded it.
    """

    seq: int
    duplicate: bool = False
    readable: bool = True


def stored_answer(caller: Caller, draft: Draft, stored: StoredWrite, row: DocumentRow | None) -> DocumentWrittenAnswer:
    """The answer to a stored write; ``row`` is the document in the views."""
    seq, size = stored.seq, 0 if row is None else row.bytes
    answer = written_answer(draft, seq, size, duplicate=stored.duplicate, readable=stored.readable)
    if row is not None:
        answer = with_text(answer, shown(caller, draft.address.label, row.content, row.finding))
    if stored.readable:
        return answer
    late = f"it is stored at {seq}, but cannot be read yet: do not write it again; read with min_seq={seq}"
    return answer.model_copy(update={"warning": late})


def document_answer(
    address: DocumentAddress,
    view_seq: int,
    content: str = "",
    finding: str | None = None,
    *,
    size: int = 0,
    sha256: str = _EMPTY,
    seq: int = 0,
    updated_ms: int | None = None,
    retracted: bool = False,
) -> DocumentAnswer:
    """A document as an answer; with only an address, a document that was never written.

    Args:
        address: The document.
        view_seq: The sequence of the answer.
        content: The text that the caller may read.
        finding: The scanners' finding in the text.
        size: Bytes of its text, even if it is blocked.
        sha256: Likewise.
        seq: Its last write.
        updated_ms: The time of that write.
        retracted: Whether it is retracted.
    """
    cap = address.rule.cap_bytes
    return DocumentAnswer(
        id=address.label,
        tier=address.tier,
        key=address.key,
        owner=address.owner,
        content=content,
        bytes=size,
        cap_bytes=cap,
        usage=None if cap is None else usage(size, cap),
        sha256=sha256,
        seq=seq,
        updated_at=None if updated_ms is None else format_ms(updated_ms),
        retracted=retracted,
        quarantined=finding_of(finding),
        view_seq=view_seq,
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

"""Encodes and decodes the facts that reactors publish on ``derived.<workspace>.<kind>``.

Invariant: ``encode`` and ``decode`` are inverse; a vector's body is exactly ``4 * dim`` bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from . import headers as h
from .envelope import LinkDerived, TokenBitsDerived, VectorDerived
from .errors import FoldError
from .ids import derived_id, is_id, message_id
from .subjects import DerivedKind, derived_subject
from .timestamps import format_ms, parse_ts, to_ms

FLOAT_BYTES: Final = 4
RELATIONS: Final = frozenset({"similar", "supports", "contradicts", "supersedes"})
MAX_DIM: Final = 16_384
"""Maximum number of dimensions; no known embedding model has more."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to publish: subject, body and headers, including ``Nats-Msg-Id``."""

    subject: str
    body: bytes
    headers: dict[str, str]


def embedded_fact_id(event: VectorDerived | TokenBitsDerived, content: str, version: int, generation: int) -> str:
    """The id of a fact that a model derived from an entry.

    The id also depends on the entry's sequence: two entries in the stream may have the same id, and the broker must not
    discard the fact of one entry as a duplicate of the fact of the other.

    Args:
        event: The fact.
        content: The model and the kind of fact.
        version: Version of the reactor.
        generation: Sequence of the event that last dropped the model, 0 if the model was never dropped. Without it, the
            broker would discard as duplicates the facts of a model that was dropped and soon added again.
    """
    cause = f"{event.workspace_id}/{event.entry_id}/{event.entry_seq}"
    return derived_id("embed", version, cause, f"{content}/{generation}" if generation else content)


def encode_vector(event: VectorDerived, version: int, generation: int = 0) -> OutgoingMessage:
    """The message of a vector fact. The broker assigns ``seq`` and ``published_ms``."""
    content = event.model if event.dim else f"{event.model}/tombstone"
    fact_id = embedded_fact_id(event, content, version, generation)
    headers = {
        h.MSG_ID: message_id(event.workspace_id, fact_id),
        h.FORMAT: h.FORMAT_VERSION,
        h.ENTRY_ID: event.entry_id,
        h.ENTRY_SEQ: str(event.entry_seq),
        h.MODEL: event.model,
        h.DIM: str(event.dim),
        h.TEXT_HASH: event.text_hash,
        h.ENTRY_TYPE: event.entry_type,
        h.SEVERITY: event.severity,
        h.PRIORITY: event.priority,
        h.TS: format_ms(event.ts_ms),
        h.REACTOR: event.reactor,
        h.DERIVED_FROM: event.entry_id,
    }
    if event.crew_id is not None:
        headers[h.CREW] = event.crew_id
    if event.agent_id is not None:
        headers[h.AGENT] = event.agent_id
    return OutgoingMessage(derived_subject(event.workspace_id, DerivedKind.VECTOR), event.vector, headers)


def decode_vector(
    seq: int, workspace_id: str, headers: Mapping[str, str], body: bytes, published_ms: int
) -> VectorDerived:
    """Decode a vector fact.

    Raises:
        FoldError: If a header is missing or malformed or the body is not ``4 * dim`` bytes.
    """
    try:
        dim = int(headers[h.DIM])
        entry_seq = int(headers[h.ENTRY_SEQ])
        ts_ms = to_ms(parse_ts(headers[h.TS]))
        event = VectorDerived(
            seq=seq,
            workspace_id=workspace_id,
            entry_id=headers[h.ENTRY_ID],
            entry_seq=entry_seq,
            model=headers[h.MODEL],
            dim=dim,
            vector=body,
            text_hash=headers[h.TEXT_HASH],
            entry_type=headers[h.ENTRY_TYPE],
            severity=headers[h.SEVERITY],
            priority=headers[h.PRIORITY],
            crew_id=headers.get(h.CREW),
            agent_id=headers.get(h.AGENT),
            ts_ms=ts_ms,
            published_ms=published_ms,
            reactor=headers.get(h.REACTOR, ""),
        )
    except KeyError as missing:
        raise FoldError(f"the vector fact at {seq} lacks the header {missing.args[0]}") from None
    except ValueError as bad:
        raise FoldError(f"the vector fact at {seq} has a malformed header: {bad}") from None
    if not is_id(event.entry_id) or not 0 <= dim <= MAX_DIM or not 0 < entry_seq < seq:
        raise FoldError(f"the vector fact at {seq} has an invalid entry id, entry sequence or dimension")
    if len(body) != FLOAT_BYTES * dim:
        raise FoldError(f"the vector fact at {seq} has {len(body)} bytes instead of {FLOAT_BYTES} * {dim}")
    return event


def encode_link(event: LinkDerived, version: int) -> OutgoingMessage:
    """The message of a link fact."""
    name = event.reactor.partition("@")[0]
    cause = f"{event.workspace_id}/{event.src_entry_id}"
    fact_id = derived_id(name, version, cause, f"{event.relation}/{event.dst_entry_id}")
    fields: dict[str, Any] = {
        "src_entry_id": event.src_entry_id,
        "src_seq": event.src_seq,
        "dst_entry_id": event.dst_entry_id,
        "dst_seq": event.dst_seq,
        "relation": event.relation,
        "weight": event.weight,
        "reason": event.reason,
        "derived_from": [event.src_entry_id, event.dst_entry_id],
    }
    if event.since_ms is not None:
        fields["since"] = format_ms(event.since_ms)
    body = json.dumps(fields, separators=(",", ":")).encode()
    headers = {
        h.MSG_ID: message_id(event.workspace_id, fact_id),
        h.FORMAT: h.FORMAT_VERSION,
        h.ENTRY_ID: event.src_entry_id,
        h.REACTOR: event.reactor,
        h.DERIVED_FROM: f"{event.src_entry_id},{event.dst_entry_id}",
    }
    if event.crew_id is not None:
        headers[h.CREW] = event.crew_id
    return OutgoingMessage(derived_subject(event.workspace_id, DerivedKind.LINK), body, headers)


def decode_link(seq: int, workspace_id: str, headers: Mapping[str, str], body: bytes, published_ms: int) -> LinkDerived:
    """Decode a link fact.

    Raises:
        FoldError: If the body is not a link.
    """
    try:
        raw = json.loads(body)
        event = LinkDerived(
            seq=seq,
            workspace_id=workspace_id,
            src_entry_id=str(raw["src_entry_id"]),
            src_seq=int(raw["src_seq"]),
            dst_entry_id=str(raw["dst_entry_id"]),
            dst_seq=int(raw["dst_seq"]),
            relation=str(raw["relation"]),
            weight=float(raw["weight"]),
            published_ms=published_ms,
            reactor=headers.get(h.REACTOR, ""),
            crew_id=headers.get(h.CREW),
            reason=str(raw.get("reason", "")),
            since_ms=to_ms(parse_ts(str(raw["since"]))) if "since" in raw else None,
        )
    except (ValueError, KeyError, TypeError, OverflowError) as bad:
        raise FoldError(f"the link fact at {seq} is malformed: {type(bad).__name__}") from None
    ids_fit = is_id(event.src_entry_id) and is_id(event.dst_entry_id) and event.src_entry_id != event.dst_entry_id
    ids_fit = ids_fit and 0 < event.src_seq < seq and 0 < event.dst_seq < seq
    if not ids_fit or event.relation not in RELATIONS or not math.isfinite(event.weight):
        raise FoldError(f"the link fact at {seq} has an invalid relation, entry id or sequence")
    return event

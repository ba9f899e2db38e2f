"""Single messages as services and reactors publish them; ``strategies`` draws whole journals of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.schemas.core import headers as h
from crew_journal.schemas.core.derived import OutgoingMessage, encode_link, encode_vector
from crew_journal.schemas.core.envelope import (
    ChunkVectorDerived,
    DocumentWritten,
    LinkDerived,
    TokenBitsDerived,
    VectorDerived,
)
from crew_journal.schemas.core.ids import hash64
from crew_journal.schemas.core.payload import ControlPayload
from crew_journal.schemas.core.subjects import control_subject, journal_subject
from crew_journal.schemas.core.timestamps import format_ms
from crew_journal.schemas.documents.events import encode_document
from crew_journal.schemas.models.events import encode_chunk_vector, encode_token_bits

EPOCH_MS = 1_795_000_000_000
"""Around the 18th of November 2026."""


def at(seq: int, message: OutgoingMessage) -> RawMessage:
    """The message as the stream keeps it at ``seq``."""
    return RawMessage(seq, message.subject, message.headers or None, message.body, EPOCH_MS + 10 * seq)


def entry(
    entry_id: str | None = "e1",
    *,
    summary: str = "the build of the parser failed",
    workspace: str = "w1",
    crew: str | None = "c1",
    agent: str | None = "a1",
    entry_type: str = "run.completed",
    ts_ms: int = EPOCH_MS,
    control: bool = False,
    **fields: Any,
) -> OutgoingMessage:
    """An entry as the journal service publishes it."""
    record: dict[str, Any] = {
        "workspace_id": workspace,
        "ts": format_ms(ts_ms),
        "entry_type": entry_type,
        "summary": summary,
        **fields,
    }
    if entry_id is not None:
        record["id"] = entry_id
    record |= {name: value for name, value in (("crew_id", crew), ("agent_id", agent)) if value is not None}
    body = json.dumps(record, ensure_ascii=False).encode()
    subject = control_subject(workspace, entry_type) if control else journal_subject(workspace, crew, agent, entry_type)
    return OutgoingMessage(subject, body, {h.CONTENT_HASH: hashlib.blake2b(body, digest_size=16).hexdigest()})


def control(
    payload: ControlPayload | Mapping[str, Any],
    entry_id: str,
    *,
    entry_type: str = "",
    workspace: str = "_system",
    actor_type: str = "system",
    ts_ms: int = EPOCH_MS,
) -> OutgoingMessage:
    """A control entry; a mapping instead of a model may be as wrong as a test likes."""
    if isinstance(payload, ControlPayload):
        entry_type, payload = payload.ENTRY_TYPE, payload.model_dump(mode="json")
    return entry(
        entry_id,
        summary="the service decided",
        workspace=workspace,
        crew=None,
        agent=None,
        entry_type=entry_type,
        control=True,
        actor_type=actor_type,
        payload=dict(payload),
        ts_ms=ts_ms,
    )


def vector(
    entry_id: str = "e1",
    *,
    entry_seq: int = 1,
    model: str = "mini",
    dim: int = 4,
    seed: int = 0,
    workspace: str = "w1",
    seq: int = 1_000_000,
    values: Sequence[float] | None = None,
) -> OutgoingMessage:
    """A vector fact, of these values or of drawn ones; ``dim`` 0 is a tombstone."""
    drawn = np.random.default_rng(seed).standard_normal(dim) if values is None else np.asarray(values)
    dim, data = len(drawn), drawn.astype("<f4").tobytes()
    fact = VectorDerived(
        seq,
        workspace,
        entry_id,
        entry_seq,
        model,
        dim,
        data,
        "ab",
        "peer.escalation",
        "warn",
        "normal",
        "c1",
        "a1",
        EPOCH_MS,
        EPOCH_MS,
        "embed@1",
    )
    return encode_vector(fact, 1)


def link(
    src: str = "e2",
    dst: str = "e1",
    *,
    src_seq: int = 2,
    dst_seq: int = 1,
    relation: str = "similar",
    weight: float = 0.9,
    workspace: str = "w1",
    crew: str | None = "c1",
    reason: str = "",
) -> OutgoingMessage:
    """A link fact."""
    fact = LinkDerived(
        1_000_000, workspace, src, src_seq, dst, dst_seq, relation, weight, EPOCH_MS, "link@1", crew, reason
    )
    return encode_link(fact, 1)


def token_bits(
    entry_id: str = "e1",
    *,
    entry_seq: int = 1,
    model: str = "mini",
    tokens: int = 3,
    seed: int = 0,
    workspace: str = "w1",
) -> OutgoingMessage:
    """A fact about tokens in context."""
    bits = np.random.default_rng(seed).bytes(8 * tokens)
    fact = TokenBitsDerived(1_000_000, workspace, entry_id, entry_seq, model, 1, 64, bits, 1, EPOCH_MS, "embed@1")
    return encode_token_bits(fact, 1)


def chunk_vector(
    text: str = "the parser is green again",
    values: Sequence[float] = (1.0, 0.0, 0.0, 0.0),
    *,
    model: str = "mini",
    workspace: str = "w1",
    write_id: str = "w_1",
) -> OutgoingMessage:
    """The vector of a text of documents; no values are a tombstone."""
    data = np.asarray(values, "<f4").tobytes()
    fact = ChunkVectorDerived(
        1_000_000, workspace, model, hash64(text), len(values), data, write_id, EPOCH_MS, "embed_chunks@1"
    )
    return encode_chunk_vector(fact, 1)


def document(
    write_id: str = "w_1",
    *,
    workspace: str = "w1",
    owner: str = "a-a1",
    tier: str = "daily",
    key: str | None = "2026-11-21",
    action: str = "append",
    content: str = "- the parser is green again\n",
    **fields: Any,
) -> OutgoingMessage:
    """A document write."""
    fields = {"source": "api", "actor_type": "agent", "actor_id": "a1", **fields}
    fact = DocumentWritten(
        1_000_000, workspace, owner, tier, key, action, content, write_id=write_id, published_ms=EPOCH_MS, **fields
    )
    return encode_document(fact)

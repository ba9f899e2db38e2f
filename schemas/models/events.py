"""Payloads of the decisions about embedding models and the embed policy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

from pydantic import Field

from ..core import headers as h
from ..core.derived import FLOAT_BYTES, OutgoingMessage, embedded_fact_id
from ..core.derived import MAX_DIM as DERIVED_MAX_DIM
from ..core.envelope import ChunkVectorDerived, TokenBitsDerived
from ..core.errors import FoldError
from ..core.ids import derived_id, is_id, message_id
from ..core.payload import ControlPayload
from ..core.subjects import DerivedKind, derived_subject

ModelKind = Literal["ollama", "minilm", "openai"]
"""The program that runs a model."""


class EmbeddingsActivated(ControlPayload):
    """Recall uses this model from now on; in the system workspace, as the default of all workspaces."""

    ENTRY_TYPE = "embeddings.activated"
    model: str = Field(min_length=1, max_length=96)
    embedder: ModelKind | Literal["none"]
    dim: int | None = Field(default=None, ge=1)
    reason: str = Field(default="", max_length=500)


class EmbeddingsAdded(ControlPayload):
    """A model is added and its vectors are computed in the background. Recorded in the system workspace."""

    ENTRY_TYPE = "embeddings.added"
    model: str = Field(min_length=1, max_length=96)
    embedder: ModelKind


class EmbeddingsDropped(ControlPayload):
    """A model is removed: its vectors are deleted from the views and no longer computed."""

    ENTRY_TYPE = "embeddings.dropped"
    model: str = Field(min_length=1, max_length=96)
    reason: str = Field(default="", max_length=500)


class ReindexRequested(ControlPayload):
    """A version of the embed policy is applied to all entries; tombstones of a model are removed."""

    ENTRY_TYPE = "embeddings.reindex_requested"
    policy: int = Field(ge=1)
    model: str | None = Field(default=None, max_length=96)
    reason: str = Field(default="", max_length=500)


MODEL_DECISIONS: Final = (EmbeddingsAdded, EmbeddingsActivated, EmbeddingsDropped)
"""What changes which models exist or which one is active."""


# Encodes and decodes the fact ``derived.<workspace>.chunk_vector``: the vector of a text of memory documents.


_HASH: Final = re.compile(r"[0-9a-f]{16}\Z")


def encode_chunk_vector(event: ChunkVectorDerived, version: int, generation: int = 0) -> OutgoingMessage:
    """The message of the fact; the broker assigns ``seq`` and ``published_ms``.

    Args:
        event: The fact.
        version: Version of the reactor.
        generation: Sequence of the model's last drop, as of ``derived.embedded_fact_id``.
    """
    content = event.model if event.dim else f"{event.model}/tombstone"
    text_hash = f"{event.text_hash:016x}"
    fact_id = derived_id("embed_chunks", version, f"{event.workspace_id}/{text_hash}", f"{content}/{generation}")
    headers = {
        h.MSG_ID: message_id(event.workspace_id, fact_id),
        h.FORMAT: h.FORMAT_VERSION,
        h.MODEL: event.model,
        h.DIM: str(event.dim),
        h.TEXT_HASH: text_hash,
        h.REACTOR: event.reactor,
        h.DERIVED_FROM: event.write_id,
    }
    return OutgoingMessage(derived_subject(event.workspace_id, DerivedKind.CHUNK_VECTOR), event.vector, headers)


def decode_chunk_vector(
    seq: int, workspace_id: str, headers: Mapping[str, str], body: bytes, published_ms: int
) -> ChunkVectorDerived:
    """Decode the fact.

    Raises:
        FoldError: If a header is missing or malformed, or the length of the body does not fit.
    """
    try:
        text_hash, model, dim, write_id = (headers[name] for name in (h.TEXT_HASH, h.MODEL, h.DIM, h.DERIVED_FROM))
        dimensions = int(dim)
    except (KeyError, ValueError) as bad:
        raise FoldError(f"the chunk vector at {seq} has no valid headers: {type(bad).__name__}") from None
    if not _HASH.match(text_hash) or not model or not is_id(write_id) or not 0 <= dimensions <= DERIVED_MAX_DIM:
        raise FoldError(f"the chunk vector at {seq} has an invalid text hash, model, write id or dimension")
    if len(body) != FLOAT_BYTES * dimensions:
        raise FoldError(f"the chunk vector at {seq} has {len(body)} bytes instead of {FLOAT_BYTES} * {dimensions}")
    return ChunkVectorDerived(
        seq=seq,
        workspace_id=workspace_id,
        model=model,
        text_hash=int(text_hash, 16),
        dim=dimensions,
        vector=body,
        write_id=write_id,
        published_ms=published_ms,
        reactor=headers.get(h.REACTOR, ""),
    )


# Encodes and decodes the fact ``derived.<workspace>.token_bits``: an entry's word pieces in context, as bits.


WORD_BITS: Final = 64
"""Bits are compared as 64-bit words, so the dimension is a multiple of 64."""
MAX_DIM: Final = 4_096
MAX_TOKENS: Final = 1_024
"""Word pieces of one fact; two passages of 126 make 252 at most."""


def encode_token_bits(event: TokenBitsDerived, version: int, generation: int = 0) -> OutgoingMessage:
    """The message of the fact; the broker assigns ``seq`` and ``published_ms``."""
    fact_id = embedded_fact_id(event, f"{event.model}/token_bits/{event.quantiser}", version, generation)
    headers = {
        h.MSG_ID: message_id(event.workspace_id, fact_id),
        h.FORMAT: h.FORMAT_VERSION,
        h.ENTRY_ID: event.entry_id,
        h.ENTRY_SEQ: str(event.entry_seq),
        h.MODEL: event.model,
        h.QUANTISER: str(event.quantiser),
        h.DIM: str(event.dim),
        h.FIRST_PASSAGE: str(event.first_passage),
        h.REACTOR: event.reactor,
        h.DERIVED_FROM: event.entry_id,
    }
    return OutgoingMessage(derived_subject(event.workspace_id, DerivedKind.TOKEN_BITS), event.bits, headers)


def decode_token_bits(
    seq: int, workspace_id: str, headers: Mapping[str, str], body: bytes, published_ms: int
) -> TokenBitsDerived:
    """Decode the fact.

    Raises:
        FoldError: If a header is missing or malformed, or the length of the body does not fit.
    """
    try:
        event = TokenBitsDerived(
            seq=seq,
            workspace_id=workspace_id,
            entry_id=headers[h.ENTRY_ID],
            entry_seq=int(headers[h.ENTRY_SEQ]),
            model=headers[h.MODEL],
            quantiser=int(headers[h.QUANTISER]),
            dim=int(headers[h.DIM]),
            bits=body,
            first_passage=int(headers[h.FIRST_PASSAGE]),
            published_ms=published_ms,
            reactor=headers.get(h.REACTOR, ""),
        )
    except KeyError as missing:
        raise FoldError(f"the token bits at {seq} lack the header {missing.args[0]}") from None
    except ValueError as bad:
        raise FoldError(f"the token bits at {seq} have a malformed header: {bad}") from None
    fits = is_id(event.entry_id) and 0 < event.entry_seq < seq and 0 < event.quantiser < 2**31
    if not fits or not 0 < event.dim <= MAX_DIM or event.dim % WORD_BITS:
        raise FoldError(f"the token bits at {seq} have an invalid entry, quantiser or dimension")
    tokens, rest = divmod(len(body), event.dim // 8)
    if rest or not 0 < tokens <= MAX_TOKENS or not 0 < event.first_passage <= tokens:
        raise FoldError(f"the token bits at {seq} have {len(body)} bytes, which is not a multiple of {event.dim} bits")
    return event

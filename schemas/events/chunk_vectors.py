"""Encodes and decodes the fact ``derived.<workspace>.chunk_vector``: the vector of a text of memory documents.

Invariant: ``encode`` and ``decode`` are inverse; the id depends on workspace, text and model alone, so a text that is
written several times is embedded once. A version that does not know this kind ignores it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ..errors import FoldError
from ..ids import derived_id, is_id, message_id
from ..subjects import DerivedKind, derived_subject
from . import headers as h
from .derived import FLOAT_BYTES, MAX_DIM, OutgoingMessage
from .envelope import ChunkVectorDerived

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
    if not _HASH.match(text_hash) or not model or not is_id(write_id) or not 0 <= dimensions <= MAX_DIM:
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

"""Encodes and decodes the fact ``derived.<workspace>.token_bits``: an entry's word pieces in context, as bits.

Invariant: ``encode`` and ``decode`` are inverse. A version that does not know this kind ignores it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..errors import FoldError
from ..ids import is_id, message_id
from ..subjects import DerivedKind, derived_subject
from . import headers as h
from .derived import OutgoingMessage, embedded_fact_id
from .envelope import TokenBitsDerived

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

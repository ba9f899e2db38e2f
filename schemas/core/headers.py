"""Header names on messages of JOURNAL and DEADLETTER; part of the event format, so they never change."""

from __future__ import annotations

from typing import Final

MSG_ID: Final = "Nats-Msg-Id"
ENTRY_ID: Final = "Crew-Entry-Id"
CONTENT_HASH: Final = "Crew-Content-Hash"
"""32 hex digits: BLAKE2b-128 of the submitted content before defaults."""
PUBLISHER: Final = "Crew-Publisher"
"""On clients' entries: the owner of the publishing token (``schemas/core/principal.publisher_of``)."""
ACTOR_VOUCHED: Final = "Crew-Actor-Vouched"
"""``VOUCHED`` if the token that submitted the entry speaks for the person whom the entry names as its actor."""
VOUCHED: Final = "1"
FORMAT: Final = "Crew-Format"
"""Version of the envelope; ``1``."""
FORMAT_VERSION: Final = "1"

SALT: Final = "Crew-Salt"
"""32 hex digits: 16 random bytes, part of the message's leaf in the log, so that a leaf does not confirm a guess."""
ORIGIN: Final = "Crew-Origin"
"""On messages that were imported with their proofs: id of the key that signed them, ``/``, and their sequence there."""

# derived.*.vector
MODEL: Final = "Crew-Model"
DIM: Final = "Crew-Dim"
TEXT_HASH: Final = "Crew-Text-Hash"
ENTRY_SEQ: Final = "Crew-Entry-Seq"
ENTRY_TYPE: Final = "Crew-Entry-Type"
SEVERITY: Final = "Crew-Severity"
PRIORITY: Final = "Crew-Priority"
CREW: Final = "Crew-Crew"
AGENT: Final = "Crew-Agent"
TS: Final = "Crew-Ts"
REACTOR: Final = "Crew-Reactor"
DERIVED_FROM: Final = "Crew-Derived-From"

# derived.*.token_bits
QUANTISER: Final = "Crew-Quantiser"
FIRST_PASSAGE: Final = "Crew-First-Passage"

# deadletter.*
DEAD_CONSUMER: Final = "Crew-Dead-Consumer"
DEAD_REASON: Final = "Crew-Dead-Reason"
DEAD_SUBJECT: Final = "Crew-Dead-Subject"
DEAD_SEQ: Final = "Crew-Dead-Seq"
DEAD_TS: Final = "Crew-Dead-Ts"
"""The broker's time of the parked message, milliseconds since the epoch."""

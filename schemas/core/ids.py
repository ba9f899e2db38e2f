"""Ids: their alphabet, new random ids, and derived ids.

Invariant: a derived id depends only on (reactor, version, cause, n), so a reactor that runs twice publishes once.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
import unicodedata
import uuid
from collections.abc import Iterable
from typing import Final

ID_PATTERN: Final = r"^[A-Za-z0-9_-]{1,64}$"
WORKSPACE_PATTERN: Final = r"^[A-Za-z0-9-][A-Za-z0-9_-]{0,63}$"
SERVICE_ID_PATTERN: Final = r"^d_[0-9a-f]{32}$"
"""The form of ``derived_id``, reserved for the service."""
SYSTEM_WORKSPACE: Final = "_system"
"""The workspace of events that concern the whole node; only the service publishes in it."""
NO_ID: Final = "_"
"""Stands for an absent crew or agent in a subject; not a valid id."""

DERIVED_NAMESPACE: Final = uuid.UUID("6f1b1c62-6f0e-5b0e-9a0c-5f6d1a3f7c21")
"""Namespace of every UUIDv5; part of the event format, must never change."""

_SEAL_KEY: Final = secrets.token_bytes(32)
_NONCE_BYTES: Final = 12
"""Random bytes of an unpredictable message id."""

_id = re.compile(ID_PATTERN.removesuffix("$") + r"\Z")
_workspace = re.compile(WORKSPACE_PATTERN.removesuffix("$") + r"\Z")
_derived = re.compile(SERVICE_ID_PATTERN.removesuffix("$") + r"\Z")


def is_id(text: str) -> bool:
    """Whether ``text`` is a valid id; the reserved ``_`` is not."""
    return bool(_id.match(text)) and text != NO_ID


def is_workspace(text: str) -> bool:
    """Whether ``text`` is a valid name of a workspace, which has no leading underscore."""
    return bool(_workspace.match(text))


def uuid7_hex(unix_ms: int | None = None) -> str:
    """A UUIDv7 (RFC 9562 §5.7) as 32 hex digits: 48 bits of milliseconds, the rest random.

    Args:
        unix_ms: Milliseconds since the epoch; the clock if absent.
    """
    ms = time.time_ns() // 1_000_000 if unix_ms is None else unix_ms
    random = int.from_bytes(secrets.token_bytes(10), "big")
    value = (ms & 0xFFFF_FFFF_FFFF) << 80 | random
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return f"{value:032x}"


def slug_of(name: str) -> str:
    """An id made from a display name: ``My Agent`` → ``my-agent``; empty if the name has no character that ids allow."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain)[:64].strip("-")


def unforeseen(message_id: str) -> str:
    """A random ``Nats-Msg-Id``, for a message whose usual id was already used by another message."""
    return f"{message_id}/{secrets.token_hex(_NONCE_BYTES)}"


def mint_entry_id(unix_ms: int | None = None) -> str:
    """A new entry id: ``j_`` and a UUIDv7, so ids sort by time."""
    return "j_" + uuid7_hex(unix_ms)


def derived_id(reactor: str, version: int, cause: str, n: int | str = 0) -> str:
    """The id of the ``n``-th event that ``reactor`` at ``version`` derives from ``cause``.

    Args:
        reactor: Name of the reactor.
        version: Its version.
        n: Number of the event among the events derived from this cause.
        cause: Workspace and id of the causing entry, or another stable name of the cause.
    """
    return "d_" + uuid.uuid5(DERIVED_NAMESPACE, f"{reactor}\x00{version}\x00{cause}\x00{n}").hex


def sealed(text: str) -> str:
    """Stands for a text, or what was made of one, in the cause of a derived id: constant in this process, else random.

    An id that anybody can compute from a text confirms a guess of the text after it was erased. With a seal, a repetition
    in the same process has the same id; after a restart, the views know what was recorded.
    """
    return hashlib.blake2b(text.encode(), key=_SEAL_KEY, digest_size=16).hexdigest()


def is_service_id(text: object) -> bool:
    """Whether ``text`` has the form of ``derived_id``, which clients may not use, because such ids are predictable."""
    return isinstance(text, str) and text.startswith("d_") and bool(_derived.match(text))


def entry_id_at(stream_seq: int) -> str:
    """The id of an entry that was published to NATS without one; derived from its sequence."""
    return "n_" + uuid.uuid5(DERIVED_NAMESPACE, f"JOURNAL\x00{stream_seq}").hex


def message_id(workspace: str, entry_id: str) -> str:
    """The ``Nats-Msg-Id`` of an id, which is unique within its workspace only."""
    return f"{workspace}/{entry_id}"


def identity_key(workspace: str, entry_id: str) -> bytes:
    """The key of (workspace, id) in the identity index: BLAKE2b-128."""
    return hashlib.blake2b(f"{workspace}/{entry_id}".encode(), digest_size=16).digest()


def hash64(text: str) -> int:
    """BLAKE2b-64 of ``text``, the key of a term.

    Indexes store keys instead of words, so that no dictionary keeps erased words.
    """
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def name_key(parts: Iterable[str]) -> int:
    """``hash64`` of several name parts joined by NUL: the ``key`` of a row in a view."""
    return hash64("\x00".join(parts))

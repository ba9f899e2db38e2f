"""Signed checkpoints: a tree's size and root as text with an Ed25519 signature (C2SP signed-note and tlog-checkpoint)."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

ORIGIN: Final = "crew-journal"
"""First line of every checkpoint, and the name of the key."""
_ED25519: Final = b"\x01"
"""The algorithm's number in key ids and verification keys."""
_KEY_ID_BYTES: Final = 4
_PUBLIC_BYTES: Final = 32
_SIGNATURE: Final = "\N{EM DASH} "
_LINES: Final = 3


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A tree of ``size`` leaves has this ``root`` (32 bytes)."""

    size: int
    root: bytes

    @property
    def text(self) -> str:
        """The signed text."""
        return f"{ORIGIN}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"


def _key_id(public: bytes) -> bytes:
    return hashlib.sha256(ORIGIN.encode() + b"\n" + _ED25519 + public).digest()[:_KEY_ID_BYTES]


def signed(checkpoint: Checkpoint, key: bytes) -> str:
    """The signed note of a checkpoint; ``key`` is a private Ed25519 key, 32 bytes."""
    private = Ed25519PrivateKey.from_private_bytes(key)
    signature = _key_id(public_key(key)) + private.sign(checkpoint.text.encode())
    return f"{checkpoint.text}\n{_SIGNATURE}{ORIGIN} {base64.b64encode(signature).decode()}\n"


def public_key(key: bytes) -> bytes:
    """The public key of a private one, 32 bytes."""
    return Ed25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()


def verification_key(public: bytes) -> str:
    """A public key as text for other verifiers (``vkey`` of signed-note)."""
    return f"{ORIGIN}+{_key_id(public).hex()}+{base64.b64encode(_ED25519 + public).decode()}"


def public_key_of(text: str) -> bytes:
    """The public key (32 bytes) of a verification key.

    Raises:
        ValueError: If it is not the verification key of a crew journal.
    """
    name, _, rest = text.partition("+")
    key_id, _, encoded = rest.partition("+")
    public = base64.b64decode(encoded, validate=True).removeprefix(_ED25519)
    if name != ORIGIN or len(public) != _PUBLIC_BYTES or key_id != _key_id(public).hex():
        raise ValueError("not the verification key of a crew journal")
    return public


def verified(note: str, public: bytes) -> Checkpoint:
    """The checkpoint in a signed note.

    Raises:
        ValueError: If the note has another form or no valid signature of this key.
    """
    text, blank, signatures = note.partition("\n\n")
    lines = text.split("\n")
    if not blank or len(lines) != _LINES or lines[0] != ORIGIN or not lines[1].isdecimal():
        raise ValueError("the text is not a checkpoint of a crew journal")
    checkpoint = Checkpoint(int(lines[1]), base64.b64decode(lines[2], validate=True))
    head = f"{_SIGNATURE}{ORIGIN} "
    for line in signatures.splitlines():
        if line.startswith(head):
            value = base64.b64decode(line.removeprefix(head), validate=True)
            if value[:_KEY_ID_BYTES] == _key_id(public):
                try:
                    Ed25519PublicKey.from_public_bytes(public).verify(value[_KEY_ID_BYTES:], f"{text}\n".encode())
                except InvalidSignature:
                    raise ValueError(f"the signature of the checkpoint at {checkpoint.size} is wrong") from None
                return checkpoint
    raise ValueError(f"the checkpoint at {checkpoint.size} is not signed by this journal's key")

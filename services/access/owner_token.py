"""The text of tokens, and the owner's token of a data directory.

Invariants: a token is 256 random bits, so a plain SHA-256 of it is as safe as a slower hash. The file is readable only
by its owner from the start, and after a crash it is complete or absent.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ...schemas.core.errors import NotAllowed
from ..data_dir import make_private

OWNER_TOKEN_FILE: Final = "admin.token"
_RANDOM_BYTES: Final = 32
_TOKEN: Final = re.compile(r"cj_[A-Za-z0-9_-]{43}\Z", re.ASCII)
_PRIVATE: Final = 0o600


def is_token(text: str) -> bool:
    """Whether ``text`` has the form of a token."""
    return bool(_TOKEN.match(text))


def mint_token() -> str:
    """``cj_`` and 43 characters of ``[A-Za-z0-9_-]``: 256 random bits."""
    return "cj_" + secrets.token_urlsafe(_RANDOM_BYTES)


def token_hash(plaintext: str) -> str:
    """Hex SHA-256; with 256 random bits, a salt or a slow hash adds nothing."""
    return hashlib.sha256(plaintext.encode()).hexdigest()


def ensure_owner_token(data_dir: Path, minted: Callable[[str], None] = lambda _token: None) -> str:
    """The owner's token of this data directory; generated at the first start into a file that only its owner can read.

    Args:
        data_dir: The directory.
        minted: Called with a new token before its file appears.

    Raises:
        NotAllowed: If it is not a file, others could read it, or it does not hold a token.
    """
    path = data_dir / OWNER_TOKEN_FILE
    with contextlib.suppress(FileExistsError):
        make_private(data_dir)
        fresh = data_dir / f".{OWNER_TOKEN_FILE}.{secrets.token_hex(8)}"
        token = mint_token()
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE), "w") as file:
            file.write(token + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            if not os.path.lexists(path):
                minted(token)
            os.link(fresh, path)  # atomic, and never overwrites an existing token
        finally:
            fresh.unlink()
    if not path.is_file():
        raise NotAllowed(f"{path} is not a file", hint="move it away; the next start writes a new token there")
    if path.stat().st_mode & ~_PRIVATE & 0o777:
        raise NotAllowed(f"{path} can be read by others", hint=f"chmod 600 {path}, or delete it for a new token")
    token = path.read_text("ascii", errors="replace").strip()
    if not _TOKEN.match(token):
        raise NotAllowed(f"{path} holds no token", hint="delete it; the next start writes a new one")
    return token

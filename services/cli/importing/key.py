"""The ids of what is imported without an id: from its content and a key that stays on the importing machine.

An id that anybody can compute from a text would confirm a guess of the text after its erasure, because erasures and receipts
keep ids. The key lies beside the positions of the hooks, outside the data directory and its backups.

Invariant: the same content has the same id in every import by this user on this machine.
"""

from __future__ import annotations

import hashlib
import secrets
from functools import cache
from pathlib import Path
from typing import Final

from ....schemas.core.errors import CrewJournalError
from ....schemas.core.user_folders import state_folder
from ...data_dir import small_file, write_private

KEY_FILE: Final = "import.key"
_KEY_BYTES: Final = 32
_ID_BYTES: Final = 16


def import_id(content: str) -> str:
    """``i_`` and the mark of the content."""
    return "i_" + import_mark(content.encode("utf-8", "replace"))


def import_mark(content: bytes) -> str:
    """32 hex digits: BLAKE2b-128 of the content with the key of this machine."""
    return hashlib.blake2b(content, key=_key(state_folder() / KEY_FILE), digest_size=_ID_BYTES).hexdigest()


@cache
def _key(path: Path) -> bytes:
    """The key; made by the first import.

    Raises:
        CrewJournalError: If it cannot be stored, so that a repeated import would store everything twice.
    """
    stored = small_file(path)
    if stored is None:
        try:
            write_private(path, secrets.token_hex(_KEY_BYTES))
        except OSError as error:
            raise CrewJournalError(
                f"the key of imports cannot be stored: {error.strerror}",
                hint=f"make {path.parent} writable, or set XDG_STATE_HOME to a folder that stays",
            ) from None
        stored = small_file(path)
    return (stored or b"")[: 2 * _KEY_BYTES]

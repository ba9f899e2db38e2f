"""The record that a journal was made from a backup.

Invariant: it is the first message behind those of the backup, so what follows it is not in the journal it was made from.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from ..entry import Timestamp
from .payload import ControlPayload


class JournalRestored(ControlPayload):
    """The journal was made from a backup.

    Attributes:
        backup_sha256: Hash of the backup's file.
        made_at: When the backup was made.
        last_seq: Last sequence that it holds.
        messages: Messages of the journal that it holds.
    """

    ENTRY_TYPE = "journal.restored"
    backup_sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    made_at: Timestamp
    last_seq: int = Field(ge=0)
    messages: int = Field(ge=0)

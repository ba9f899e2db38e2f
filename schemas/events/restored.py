"""The record that a journal was made from a backup.

Invariant: it is the first message after those of the backup, so later messages are not in the original journal.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from ..entry import Timestamp
from .payload import ControlPayload, EntryTypeInfo, PublisherKind


class JournalRestored(ControlPayload):
    """The journal was made from a backup.

    Attributes:
        backup_sha256: Hash of the backup's file.
        made_at: When the backup was made.
        last_seq: Last sequence in the backup.
        messages: Number of messages of the journal in the backup.
    """

    ENTRY_TYPE = "journal.restored"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.SERVICE)
    backup_sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    made_at: Timestamp
    last_seq: int = Field(ge=0)
    messages: int = Field(ge=0)

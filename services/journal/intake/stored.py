"""What the broker has stored where it says that a message is a duplicate.

Why: a client with rights on NATS chooses its message ids freely, so a duplicate ack proves nothing about content.
"""

from __future__ import annotations

from typing import Final

from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from ....schemas.decode import decode
from ....schemas.errors import BrokerUnavailable, EntryConflict, FoldError
from ....schemas.events.envelope import EntryRecorded
from ....schemas.subjects import JOURNAL_STREAM
from .plain import Accepted

_OTHER: Final = ""
"""Stands for the content of an entry that has our id and cannot have our content: its subject is another."""


async def stored_content(messages: JetStreamContext, accepted: Accepted, seq: int) -> str | None:
    """The content hash of the message at ``seq`` as a fold sees it; None if it is not an entry with this id.

    Raises:
        EntryConflict: If the message does not exist any more: the id was erased.
        BrokerUnavailable: If the broker does not tell.
    """
    try:
        stored = await messages.get_msg(JOURNAL_STREAM, seq=seq)  # direct: a header Status would deceive nats-py
    except NotFoundError:
        raise EntryConflict(
            f"an entry with id {accepted.entry_id} was erased from the journal at {seq}",
            hint="an erased id cannot be used again",
            field="id",
            seq=seq,
        ) from None
    except (NatsError, TimeoutError) as error:
        raise BrokerUnavailable(
            f"cannot compare with the entry stored at {seq}: {error}", hint="try again with the same id"
        ) from None
    headers = {name: str(value) for name, value in (stored.headers or {}).items()}
    try:
        event = decode(seq, stored.subject or "", headers, stored.data or b"", 0)
    except FoldError:
        return None
    if not isinstance(event, EntryRecorded):
        return None
    if event.workspace_id != accepted.workspace_id or event.entry.id != accepted.entry_id:
        return None
    return event.content.hex() if stored.subject == accepted.subject else _OTHER  # else the hash was forged

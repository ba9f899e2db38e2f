"""Payloads about texts that were given to agents, and about notices of their end."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, Field

from ..core.entry import Id
from ..core.payload import STORED, ControlPayload, EntryTypeInfo, PublisherKind
from ..recall.events import HIT_ID_CHARS

MOST_HELD: Final = 1_000
"""Maximum number of texts of one prompt that are recorded, and of entries and writes of one text."""
HOLDER_CHARS: Final = 72
"""``agent:`` or ``token:`` and an id."""


class HeldText(BaseModel):
    """A text in a prompt.

    Attributes:
        kind: ``entry``, ``rule``, ``lesson``, ``document``, ``drawer`` or ``person``.
        id: Its id: ``<owner>/<label>`` of a document, the id of the entry that filed a drawer.
        entry_ids: The entries or document writes from which the text comes.
    """

    model_config = STORED
    kind: str = Field(min_length=1, max_length=32)
    id: str = Field(min_length=1, max_length=HIT_ID_CHARS)
    entry_ids: tuple[Id, ...] = Field(default=(), max_length=MOST_HELD)


class MemoryGiven(ControlPayload):
    """A text for a prompt was given to an agent that searched for nothing. The entry's id is the receipt.

    Agent and crew of the entry are the caller's, its ``trace_id`` is the run.

    Attributes:
        prompt: The kind of text: ``memory_block``, ``wake_up``, ``palace_context`` or ``palace_recall``.
        texts: The texts in it.
        view_seq: Sequence of the views from which it was made.
        asked_by: Id of the token that asked.
    """

    ENTRY_TYPE = "memory.given"
    INFO = EntryTypeInfo(group="memory", publisher=PublisherKind.RESERVED, noise=True, quiet=True)
    prompt: str = Field(min_length=1, max_length=64)
    texts: tuple[HeldText, ...] = Field(default=(), max_length=MOST_HELD)
    view_seq: int = Field(default=0, ge=0)
    asked_by: str | None = Field(default=None, max_length=64)


class NoticesGiven(ControlPayload):
    """A run was told that memories which it was given have ended.

    Attributes:
        holder: The run's agent or token, as ``agent:<id>`` or ``token:<id>``.
        run: The run; empty for prompts without one.
        entry_ids: The memories.
        until_seq: Sequence of the last of these notices.
    """

    ENTRY_TYPE = "memory.notices_given"
    INFO = EntryTypeInfo(group="memory", publisher=PublisherKind.RESERVED, noise=True, quiet=True)
    holder: str = Field(min_length=1, max_length=HOLDER_CHARS)
    run: str = Field(default="", max_length=64)
    entry_ids: tuple[Id, ...] = Field(min_length=1, max_length=MOST_HELD)
    until_seq: int = Field(ge=0)

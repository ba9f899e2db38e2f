"""Fits a conversation into a budget: old observations are masked, then the oldest messages are dropped.

Invariant: pure; the result is the end of the conversation, in order. A message is never cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .tokens import Count

OBSERVATION_ROLE: Final = "tool"
WHOLE_OBSERVATIONS: Final = 3
"""Number of the newest observations, which are never masked."""
MASK: Final = "[observation of {tokens} tokens left out]"
FRAME_TOKENS: Final = 4
"""Tokens of a message beside its text, in the chat formats of OpenAI."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message, ``at`` its place in the conversation."""

    at: int
    role: str
    content: str


@dataclass(frozen=True, slots=True)
class ConversationFitted:
    """The messages that fit.

    Attributes:
        shown: The messages, oldest first.
        tokens: Their tokens.
        masked: Places of observations that were replaced by a note.
        dropped: Places of messages that were dropped.
    """

    shown: tuple[Message, ...]
    tokens: int
    masked: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()


def fit_conversation(messages: Sequence[Message], room: int, count: Count) -> ConversationFitted:
    """The end of a conversation within ``room`` tokens; observations are masked only if it does not fit whole."""
    sizes = [tokens_of(message, count) for message in messages]
    if sum(sizes) <= room:
        return ConversationFitted(tuple(messages), sum(sizes))
    observations = [message.at for message in messages if message.role == OBSERVATION_ROLE]
    old = set(observations[:-WHOLE_OBSERVATIONS])
    shorter = [_masked(message, count) if message.at in old else message for message in messages]
    kept: list[Message] = []
    used = 0
    for message in reversed(shorter):
        size = tokens_of(message, count)
        if used + size > room:
            break
        kept.append(message)
        used += size
    kept.reverse()
    places = {message.at for message in kept}
    masked = tuple(
        new.at for new, before in zip(shorter, messages, strict=True) if new is not before and new.at in places
    )
    dropped = tuple(message.at for message in messages if message.at not in places)
    return ConversationFitted(tuple(kept), used, masked, dropped)


def tokens_of(message: Message, count: Count) -> int:
    """Tokens of a message with its frame."""
    return count(message.content) + FRAME_TOKENS


def _masked(message: Message, count: Count) -> Message:
    note = MASK.format(tokens=count(message.content))
    return message if count(note) >= count(message.content) else Message(message.at, message.role, note)

"""The port of chat models: one question, one answer in the form of a pydantic model, and its cost.

Invariant: an answer without the requested form is an error. A failure says whether trying again later can help:
``ChatUnavailable`` (try again), ``ChatInputRejected`` and ``ChatBadAnswer`` (do not).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from pydantic import BaseModel

from ..core.errors import CrewJournalError

A_co = TypeVar("A_co", bound=BaseModel, covariant=True)
A = TypeVar("A", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Prompt:
    """The question to a model.

    Attributes:
        system: The task.
        user: The data, best as JSON, so that no text of it can end the question.
        max_tokens: Most tokens of the answer.
    """

    system: str
    user: str
    max_tokens: int = 2_048


@dataclass(frozen=True, slots=True)
class Usage:
    """The cost of a call: tokens as the server counts them (None if it does not), milliseconds until the answer."""

    tokens_in: int | None = None
    tokens_out: int | None = None
    duration_ms: int = 0


@dataclass(frozen=True, slots=True)
class Completion(Generic[A_co]):
    """An answer and its cost."""

    answer: A_co
    usage: Usage


class ChatError(CrewJournalError):
    """A chat model gave no answer; ``usage`` is the cost of the call."""

    title = "The chat model gave no answer"
    status = 503
    exit_code = 5
    usage = Usage()


class ChatUnavailable(ChatError):
    """The model cannot be reached, is too slow, too busy, or not installed, or the key is refused; try again later."""


class ChatInputRejected(ChatError):
    """The server refuses this request; the same request is refused again."""


class ChatBadAnswer(ChatError):
    """The answer does not have the requested form, or was cut off."""


class ChatModel(Protocol):
    """A chat model behind an endpoint."""

    @property
    def model_id(self) -> str:
        """The model's name at its server."""
        ...

    async def complete(self, prompt: Prompt, form: type[A]) -> Completion[A]:
        """Ask the model.

        Args:
            prompt: The question.
            form: A model of plain fields without constraints, each of them required; check the values yourself,
                because a server may ignore constraints.

        Raises:
            ChatUnavailable: Try again later.
            ChatInputRejected: The server refuses this request.
            ChatBadAnswer: The answer does not have the requested form.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...

"""Asks a chat model for a workspace and records what the call cost, as an ``llm.call`` entry.

Invariant: each call that reached a model is one entry, even if its answer did not have the requested form; the entry
holds neither the question nor the answer. Its id is random, because a repeated sweep calls the model again, which costs
again.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import orjson

from ...schemas.core import headers as h
from ...schemas.core.derived import OutgoingMessage
from ...schemas.core.entry import ActorType
from ...schemas.core.ids import message_id, mint_entry_id
from ...schemas.core.ports import Publisher
from ...schemas.core.subjects import journal_subject
from ...schemas.models.chat import A, ChatBadAnswer, ChatInputRejected, ChatModel, ChatUnavailable, Prompt, Usage
from ...schemas.settings import Settings

LLM_CALL: Final = "llm.call"
_CONTENT_BYTES: Final = 16


def chat_of(settings: Settings) -> ChatModel | None:
    """The chat model in the settings; None if they name no model.

    Raises:
        ChatUnavailable: The URL is not valid.
    """
    if not (settings.llm_model or settings.llm_base_url):
        return None
    from ..adapters.chat import chat_model_of  # the HTTP client is imported where it is used

    return chat_model_of(settings)


class MeteredChat:
    """A chat model whose calls are recorded.

    Args:
        chat: The model; closed with this.
        publisher: Publishes to JOURNAL; not closed here.
        reactor: ``name@version`` of the reactor, the entry's ``actor_id``.
    """

    def __init__(self, chat: ChatModel, publisher: Publisher, reactor: str) -> None:
        self._chat = chat
        self._publisher = publisher
        self._reactor = reactor

    @property
    def model_id(self) -> str:
        """The model's name at its server."""
        return self._chat.model_id

    async def complete(
        self, workspace_id: str, purpose: str, prompt: Prompt, form: type[A], *, crew_id: str | None = None
    ) -> A:
        """Ask, record the cost, and return the answer.

        Args:
            workspace_id: Workspace of the entry that records the cost.
            purpose: What the answer is for, such as ``consolidation``.
            prompt: The question.
            form: The form of the answer, see ``ChatModel.complete``.
            crew_id: The crew that the call is for, if there is one.

        Raises:
            ChatUnavailable: Try again later; nothing is recorded.
            ChatInputRejected: The server refuses this request.
            ChatBadAnswer: The answer does not have the form.
            BrokerUnavailable: The cost could not be recorded.
        """
        try:
            done = await self._chat.complete(prompt, form)
        except ChatUnavailable:
            raise
        except (ChatInputRejected, ChatBadAnswer) as error:
            outcome = "rejected" if isinstance(error, ChatInputRejected) else "bad_answer"
            await self._record(workspace_id, crew_id, purpose, outcome, error.usage)
            raise
        await self._record(workspace_id, crew_id, purpose, "answered", done.usage)
        return done.answer

    async def close(self) -> None:
        """Close the connections of the model."""
        await self._chat.close()

    async def _record(self, workspace_id: str, crew_id: str | None, purpose: str, outcome: str, usage: Usage) -> None:
        entry_id = mint_entry_id()
        record: dict[str, Any] = {
            "id": entry_id,
            "workspace_id": workspace_id,
            "entry_type": LLM_CALL,
            "actor_type": ActorType.SYSTEM.value,
            "actor_id": self._reactor,
            "summary": f"{purpose}: call of {self.model_id}, {outcome.replace('_', ' ')}",
            "payload": {
                "model": self.model_id,
                "purpose": purpose,
                "outcome": outcome,
                "input_tokens": usage.tokens_in,
                "output_tokens": usage.tokens_out,
                "duration_ms": usage.duration_ms,
            },
        }
        if crew_id is not None:
            record["crew_id"] = crew_id
        body = orjson.dumps(record)
        headers = {
            h.MSG_ID: message_id(workspace_id, entry_id),
            h.ENTRY_ID: entry_id,
            h.CONTENT_HASH: hashlib.blake2b(body, digest_size=_CONTENT_BYTES).hexdigest(),
            h.FORMAT: h.FORMAT_VERSION,
        }
        message = OutgoingMessage(journal_subject(workspace_id, crew_id, None, LLM_CALL), body, headers)
        await self._publisher.publish(message.subject, message.body, message.headers)

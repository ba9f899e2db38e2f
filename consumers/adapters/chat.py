"""Chat models behind Ollama's ``/api/chat`` and behind ``/chat/completions`` of OpenAI and compatible servers.

Invariant: every failure is a ``ChatError``; no request takes longer than its time limit, and no answer is read beyond
``MAX_ANSWER_BYTES``. Errors hold neither the prompt nor the key.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Final, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from ...schemas.models.chat import A as CHAT_A
from ...schemas.models.chat import (
    ChatBadAnswer,
    ChatInputRejected,
    ChatModel,
    ChatUnavailable,
    Completion,
    Prompt,
    Usage,
)
from ...schemas.settings import LLM_DEFAULT_MODEL, LLM_TIMEOUT_S, Settings
from .served import INPUT_STATUSES, OK, AnswerTooLong, BrokenOff, JsonServer, Naming, Reply

# Reads the answer of a chat model: JSON of a requested form, alone or inside a code fence or other text.


_BRACKETS: Final = (("{", "}"), ("[", "]"))

A = TypeVar("A", bound=BaseModel)


def answer_of(text: str, form: type[A]) -> A | None:
    """The answer in a text; None if absent.

    The whole text is tried first, then the text from its first ``{`` to its last ``}``, or from its first ``[`` to its
    last ``]``; the outer pair is tried first. A list is accepted if the form has a single field.
    """
    for part in _parts(text):
        try:
            value = json.loads(part)
            if isinstance(value, list) and len(form.model_fields) == 1:
                value = {next(iter(form.model_fields)): value}
            return form.model_validate(value)
        except (ValidationError, ValueError, RecursionError):
            continue
    return None


def closed_schema(form: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a form for OpenAI's strict mode: all fields required, no others allowed."""
    closed: dict[str, Any] = _close(form.model_json_schema())
    return closed


def _close(part: Any) -> Any:
    if isinstance(part, list):
        return [_close(item) for item in part]
    if not isinstance(part, dict):
        return part
    closed = {name: _close(item) for name, item in part.items() if name != "default"}
    if closed.get("type") == "object" and "properties" in closed:
        closed |= {"required": list(closed["properties"]), "additionalProperties": False}
    return closed


def _parts(text: str) -> Iterator[str]:
    yield text
    spans = [(text.find(first), text.rfind(last) + 1) for first, last in _BRACKETS]
    yield from (text[start:end] for start, end in sorted(spans) if 0 <= start < end)


MAX_ANSWER_BYTES: Final = 1024 * 1024
"""Maximum bytes of a response; an answer of 2,048 tokens has about 10,000."""
_KEY: Final = "CREW_JOURNAL_LLM_API_KEY"
_OLLAMA_CONTEXT: Final = 4_096
"""Tokens of context that Ollama gives a model by default; it cuts longer prompts without an error."""
_BYTES_A_TOKEN: Final = 3
"""Minimum bytes of text per token on average; English has four."""
_MAX_TOKENS: Final = 2**53


class HttpChat(ABC):
    """A ``ChatModel`` behind an HTTP endpoint; connects at the first call.

    Args:
        base_url: URL of the server.
        model: The model's name at the server.
        api_key: Sent as a bearer token; None for none.
        timeout_s: Seconds for an answer.

    Raises:
        ChatUnavailable: ``base_url`` is not a valid URL.
    """

    naming: ClassVar[Naming]

    def __init__(
        self, base_url: str, model: str, *, api_key: str | None = None, timeout_s: float = LLM_TIMEOUT_S
    ) -> None:
        self._model = model
        self._timeout_s = timeout_s
        self._http = JsonServer(base_url, self._path, self.naming, api_key=api_key, max_bytes=MAX_ANSWER_BYTES)

    @property
    def model_id(self) -> str:
        """The model's name at its server."""
        return self._model

    async def complete(self, prompt: Prompt, form: type[CHAT_A]) -> Completion[CHAT_A]:
        """Ask the model; see ``ChatModel``."""
        began = time.monotonic()
        try:
            reply = await self._http.post(self._body(prompt, closed_schema(form)), self._timeout_s)
        except AnswerTooLong:
            raise self._bad(f"is longer than {MAX_ANSWER_BYTES:,} bytes", Usage()) from None
        except BrokenOff as error:
            raise ChatUnavailable(f"the answer of {self._model} at {self._http.where} broke off") from error
        if reply.status != OK:
            self._raise_for_status(reply)
        duration_ms = round(1_000 * (time.monotonic() - began))
        try:
            text, cut, usage = self._read(json.loads(reply.content), duration_ms)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
            raise self._bad("is not one of its API", Usage(duration_ms=duration_ms)) from error
        if cut:
            raise self._bad(f"was cut off after {prompt.max_tokens} tokens", usage)
        answer = answer_of(text, form)
        if answer is None:
            raise self._bad(f"is not a {form.__name__}", usage)
        return Completion(answer, usage)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    def _raise_for_status(self, reply: Reply) -> NoReturn:
        problem, hint = self._http.fault(reply, self._model)
        if reply.status in INPUT_STATUSES:
            raise ChatInputRejected(problem, hint=f"check whether {self._model} supports structured output")
        raise ChatUnavailable(problem, hint=hint)

    def _bad(self, problem: str, usage: Usage) -> ChatBadAnswer:
        error = ChatBadAnswer(f"the answer of {self._model} at {self._http.where} {problem}", hint="try another model")
        error.usage = usage
        return error

    @abstractmethod
    def _path(self, base: str) -> str:
        """The path of requests, derived from the path of the base URL."""

    @abstractmethod
    def _body(self, prompt: Prompt, schema: dict[str, Any]) -> dict[str, Any]:
        """The request."""

    @abstractmethod
    def _read(self, reply: Any, duration_ms: int) -> tuple[str, bool, Usage]:
        """The answer's text, whether it was cut off, and what it cost."""


class OllamaChat(HttpChat):
    """Ollama's structured output; needs Ollama 0.5."""

    naming = Naming("Ollama", "OLLAMA_HOST to http://HOST:PORT", _KEY, ChatUnavailable)

    def _path(self, base: str) -> str:
        return f"{base}/api/chat"

    def _body(self, prompt: Prompt, schema: dict[str, Any]) -> dict[str, Any]:
        options: dict[str, Any] = {"temperature": 0.0, "seed": 0, "num_predict": prompt.max_tokens}
        size = len((prompt.system + prompt.user).encode()) // _BYTES_A_TOKEN + prompt.max_tokens
        if size > _OLLAMA_CONTEXT:
            options["num_ctx"] = -(-size // _OLLAMA_CONTEXT) * _OLLAMA_CONTEXT
        return {
            "model": self._model,
            "messages": _messages(prompt),
            "format": schema,
            "stream": False,
            "options": options,
        }

    def _read(self, reply: Any, duration_ms: int) -> tuple[str, bool, Usage]:
        usage = Usage(_count(reply.get("prompt_eval_count")), _count(reply.get("eval_count")), duration_ms)
        return _text(reply["message"]["content"]), reply.get("done_reason") == "length", usage


class OpenAiChat(HttpChat):
    """``/chat/completions`` with ``response_format`` ``json_schema``; a URL without a path gets ``/v1``."""

    naming = Naming("the endpoint", "CREW_JOURNAL_LLM_BASE_URL to http://HOST:PORT", _KEY, ChatUnavailable)

    def _path(self, base: str) -> str:
        return f"{base or '/v1'}/chat/completions"

    def _body(self, prompt: Prompt, schema: dict[str, Any]) -> dict[str, Any]:
        form = {"name": "answer", "strict": True, "schema": schema}
        return {
            "model": self._model,
            "messages": _messages(prompt),
            "response_format": {"type": "json_schema", "json_schema": form},
            "temperature": 0.0,
            "max_tokens": prompt.max_tokens,
        }

    def _read(self, reply: Any, duration_ms: int) -> tuple[str, bool, Usage]:
        spent = reply.get("usage") or {}
        usage = Usage(_count(spent.get("prompt_tokens")), _count(spent.get("completion_tokens")), duration_ms)
        choice = reply["choices"][0]
        return _text(choice["message"]["content"] or ""), choice.get("finish_reason") == "length", usage


def chat_model_of(
    settings: Settings, model: str | None = None, *, timeout_s: float = LLM_TIMEOUT_S
) -> ChatModel | None:
    """The chat model in the settings; None if they name no model.

    Args:
        settings: With a base URL, an OpenAI-compatible endpoint is used, else Ollama.
        model: Another model of the same server.
        timeout_s: Seconds for an answer.

    Raises:
        ChatUnavailable: The URL is not valid.
    """
    if settings.llm_base_url is not None:
        name = model or settings.llm_model or LLM_DEFAULT_MODEL
        return OpenAiChat(settings.llm_base_url, name, api_key=settings.llm_api_key, timeout_s=timeout_s)
    model_name = model or settings.llm_model
    return None if model_name is None else OllamaChat(settings.ollama_host, model_name, timeout_s=timeout_s)


def _messages(prompt: Prompt) -> list[dict[str, str]]:
    return [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]


def _text(content: Any) -> str:
    if not isinstance(content, str):
        raise TypeError("content is not text")
    return content


def _count(tokens: Any) -> int | None:
    return tokens if type(tokens) is int and 0 <= tokens < _MAX_TOKENS else None

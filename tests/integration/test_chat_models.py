"""Both chat adapters over a real socket: an answer of the requested form, or an error that says whether to try again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel
from support.ollama_server import OllamaServer

from crew_journal.consumers.adapters.chat import (
    HttpChat,
    OllamaChat,
    OpenAiChat,
    answer_of,
    chat_model_of,
    closed_schema,
)
from crew_journal.schemas.models.chat import ChatBadAnswer, ChatInputRejected, ChatUnavailable, Prompt, Usage
from crew_journal.schemas.settings import Settings

KEY = "sk-secret"


class Found(BaseModel):
    """One finding."""

    text: str
    evidence: list[str]


class Findings(BaseModel):
    """What is asked for."""

    found: list[Found] = []


ONE = {"text": "deploys fail", "evidence": ["e1", "e2"]}
WHOLE = json.dumps({"found": [ONE]})
ASKED = Prompt("Find what recurs.", '{"entries": []}', max_tokens=64)


@pytest.fixture
def server() -> Iterator[OllamaServer]:
    with OllamaServer(models=("qwen",), says=WHOLE) as running:
        yield running


@pytest.fixture(params=[OllamaChat, OpenAiChat])
def kind(request: pytest.FixtureRequest) -> type[HttpChat]:
    return request.param  # type: ignore[no-any-return]  # typed by pytest as Any


async def test_an_answer_of_the_form_and_its_cost_come_back(server: OllamaServer, kind: type[HttpChat]) -> None:
    chat = kind(server.url, "qwen", api_key=KEY)
    done = await chat.complete(ASKED, Findings)
    await chat.close()
    assert done.answer.found == [Found(**ONE)]
    assert (done.usage.tokens_in, done.usage.tokens_out) == (11, 7)
    [seen] = server.requests
    assert seen.authorization == f"Bearer {KEY}"
    assert [message["role"] for message in seen.body["messages"]] == ["system", "user"]
    if kind is OllamaChat:
        assert (seen.path, seen.body["format"], seen.body["stream"]) == ("/api/chat", closed_schema(Findings), False)
        assert "num_ctx" not in seen.body["options"]
    else:
        form = seen.body["response_format"]["json_schema"]
        assert (seen.path, form["schema"]) == ("/v1/chat/completions", closed_schema(Findings))
        assert form["schema"]["required"] == ["found"]


async def test_ollama_is_given_a_context_that_holds_a_long_question(server: OllamaServer) -> None:
    chat = OllamaChat(server.url, "qwen")
    await chat.complete(Prompt("s", "word " * 10_000), Findings)
    await chat.close()
    assert server.requests[0].body["options"]["num_ctx"] >= 50_000 // 3


@pytest.mark.parametrize(
    ("says", "count"),
    [
        (f"```json\n{WHOLE}\n```", 1),
        (f"Here is what recurs:\n{WHOLE}\nI hope it helps.", 1),
        (json.dumps([ONE, ONE]), 2),
        (f"Sure!\n```\n{json.dumps([ONE])}\n```", 1),
        ('{"found": []}', 0),
        ('{"found": [], "ignore previous": "instructions"}', 0),
        ("I found nothing.", None),
        ("", None),
        (WHOLE[:-5], None),
        ('{"found": {"text": 1}}', None),
        ('{"found": ["deploys fail"]}', None),
        ("[" * 100_000, None),
        ("null", None),
    ],
)
async def test_only_an_answer_of_the_form_counts(
    server: OllamaServer, kind: type[HttpChat], says: str, count: int | None
) -> None:
    server.says = says
    chat = kind(server.url, "qwen")
    if count is None:
        with pytest.raises(ChatBadAnswer, match="qwen") as raised:
            await chat.complete(ASKED, Findings)
        assert raised.value.usage.tokens_in == 11
    else:
        assert len((await chat.complete(ASKED, Findings)).answer.found) == count
    await chat.close()


async def test_an_answer_that_was_cut_off_is_no_answer(server: OllamaServer, kind: type[HttpChat]) -> None:
    server.cut = True
    chat = kind(server.url, "qwen")
    with pytest.raises(ChatBadAnswer, match="cut off after 64 tokens"):
        await chat.complete(ASKED, Findings)
    await chat.close()


@pytest.mark.parametrize("failure", ["slow", "server-error", "model-missing", "half-answer"])
async def test_an_outage_says_that_trying_again_may_help(
    server: OllamaServer, kind: type[HttpChat], failure: Any
) -> None:
    server.fail(failure)
    chat = kind(server.url, "qwen", timeout_s=0.5 if failure == "slow" else 60.0)
    with pytest.raises(ChatUnavailable):
        await chat.complete(ASKED, Findings)
    server.fail("ok")
    assert (await chat.complete(ASKED, Findings)).answer.found
    await chat.close()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, ChatInputRejected),
        (413, ChatInputRejected),
        (422, ChatInputRejected),
        (301, ChatUnavailable),
        (401, ChatUnavailable),
        (429, ChatUnavailable),
        (503, ChatUnavailable),
    ],
)
async def test_a_status_says_whether_the_request_or_the_server_is_at_fault_and_shows_no_key(
    server: OllamaServer, kind: type[HttpChat], status: int, error: type[Exception]
) -> None:
    server.answers = (status, f"not with {KEY}")
    chat = kind(server.url, "qwen", api_key=KEY)
    with pytest.raises(error, match=str(status)) as raised:
        await chat.complete(ASKED, Findings)
    assert KEY not in str(raised.value)
    await chat.close()


async def test_what_is_not_json_or_too_long_is_a_bad_answer(server: OllamaServer, kind: type[HttpChat]) -> None:
    chat = kind(server.url, "qwen")
    server.fail("not-json")
    with pytest.raises(ChatBadAnswer, match="not one of its API"):
        await chat.complete(ASKED, Findings)
    server.fail("ok")
    server.says = "x" * 2_000_000
    with pytest.raises(ChatBadAnswer, match="longer than"):
        await chat.complete(ASKED, Findings)
    await chat.close()


async def test_a_server_that_is_down_is_unavailable(server: OllamaServer, kind: type[HttpChat]) -> None:
    server.stop()
    chat = kind(server.url, "qwen")
    with pytest.raises(ChatUnavailable, match="cannot be reached"):
        await chat.complete(ASKED, Findings)
    await chat.close()


@pytest.mark.parametrize("url", ["http://[::1", "http://127.0.0.1:port", "http://127.0.0.1:99999999"])
def test_a_url_that_is_not_valid_is_refused_when_it_is_set(kind: type[HttpChat], url: str) -> None:
    with pytest.raises(ChatUnavailable, match="not a valid URL"):
        kind(url, "qwen")


def test_settings_choose_the_server_and_the_seeds_names_count(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chat_model_of(Settings()) is None
    ollama = chat_model_of(Settings(llm_model="qwen"))
    assert isinstance(ollama, OllamaChat)
    monkeypatch.setenv("CRAWBL_LLM_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("CRAWBL_LLM_API_KEY", KEY)
    settings = Settings()
    named = chat_model_of(settings)
    assert isinstance(named, OpenAiChat)
    assert named.model_id == "gpt-4o-mini"
    assert settings.llm_api_key == KEY
    assert KEY not in repr(settings)
    monkeypatch.setenv("CRAWBL_CLASSIFY_MODEL", "small")
    other = chat_model_of(Settings())
    assert other is not None
    assert other.model_id == "small"


def test_a_list_is_an_answer_only_where_the_form_has_one_field() -> None:
    assert answer_of('["a"]', Found) is None
    assert Usage().tokens_in is None

"""The HTTP provider: what it sends, and how failures of the service leave it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from crew_journal.schemas.core.errors import (
    BackendFailed,
    DocumentConflict,
    DocumentError,
    MissingKey,
    NotAllowed,
    ScopeMismatch,
    UpstreamTimeout,
)
from crew_journal.schemas.documents.provider import ForgetRequest, ProviderScope, RetainRequest, SnippetsRequest
from crew_journal.services.documents.adapters import StoreProvider
from crew_journal.services.documents.providers import HttpStore

SCOPE = ProviderScope(workspace_id="acme", agent_id="ada", crew_id="red", role="AGENT")
WRITE = RetainRequest(workspace_id="acme", tier="AGENT", content="- text\n", mode="append")
Answer = Callable[[httpx.Request], httpx.Response]


def provider(answer: Answer) -> StoreProvider:
    client = httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://memory")
    return StoreProvider(HttpStore(client), SCOPE)


def answers(status: int, body: Any) -> Answer:
    return lambda _request: httpx.Response(status, json=body)


def raises(error: type[httpx.TransportError]) -> Answer:
    def fail(request: httpx.Request) -> httpx.Response:
        raise error("http://memory/secret", request=request)

    return fail


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (raises(httpx.ReadTimeout), UpstreamTimeout),
        (raises(httpx.ConnectTimeout), UpstreamTimeout),
        (raises(httpx.ConnectError), BackendFailed),
        (answers(500, {"title": "Crew Journal failed", "detail": "an unexpected fault"}), BackendFailed),
        (answers(503, {}), BackendFailed),
        (answers(504, {"code": "UpstreamTimeout", "detail": "too slow"}), UpstreamTimeout),
        (answers(401, {"code": "NotAuthenticated", "detail": "unknown token"}), NotAllowed),
        (answers(409, {"code": "DocumentConflict", "detail": "changed"}), DocumentConflict),
        (answers(422, {"title": "The key is missing or not valid", "detail": "no key"}), MissingKey),
        (answers(422, {"code": "InvalidRequest", "detail": "bad"}), DocumentError),
        (answers(418, {}), DocumentError),
        (answers(200, {"not": "ours"}), BackendFailed),
        (lambda _request: httpx.Response(502, text="<html>"), BackendFailed),
    ],
)
async def test_every_failure_leaves_as_a_named_error_without_a_text_of_the_library(
    answer: Answer, kind: type[Exception]
) -> None:
    with pytest.raises(kind) as failed:
        await provider(answer).retain(WRITE)
    assert type(failed.value) is kind
    assert "secret" not in str(failed.value)


async def test_a_write_has_an_id_and_names_whose_document_it_is() -> None:
    sent: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        return httpx.Response(503)

    for _ in range(2):
        with pytest.raises(BackendFailed):
            await provider(answer).retain(WRITE)
    first, second = (body.pop("write_id") for body in sent)
    assert first != second
    assert sent[0] == {
        "workspace_id": "acme",
        "agent_id": "ada",
        "crew_id": "red",
        "tier": "AGENT",
        "scope": "agent",
        "mode": "append",
        "content": "- text\n",
    }


async def test_what_the_service_would_take_but_the_port_refuses_is_not_sent() -> None:
    def answer(_request: httpx.Request) -> httpx.Response:
        raise AssertionError("nothing may be sent")

    asked = provider(answer)
    with pytest.raises(MissingKey):
        await asked.retain(WRITE.model_copy(update={"tier": "daily"}))
    with pytest.raises(ScopeMismatch):
        await asked.retain(WRITE.model_copy(update={"agent_id": "bob"}))
    with pytest.raises(NotAllowed):
        await asked.retain(WRITE.model_copy(update={"tier": "pins"}))
    with pytest.raises(DocumentError):
        await asked.forget(ForgetRequest(workspace_id="acme", id="../secret.md"))


async def test_scores_of_the_service_become_shares_of_the_best() -> None:
    hits = [
        {"file": "AGENT.md", "snippet": "x" * 600, "score": score, "source": "agent", "line": 1}
        for score in (-4.0, -1.0)
    ]
    found = await provider(answers(200, {"results": hits, "count": 2, "view_seq": 1})).recall(
        SnippetsRequest(workspace_id="acme", query="words", limit=1_000)
    )
    assert [hit.score for hit in found.hits] == [1.0, 0.25]
    assert {len(hit.snippet) for hit in found.hits} == {500}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (answers(200, {"documents": [], "bytes": 0, "view_seq": 1}), None),
        (answers(200, {"status": "ok"}), "the answer is not that of a memory service: check the URL"),
        (answers(401, {"title": "no"}), '401 from the service: {"title":"no"}'),
        (
            answers(503, {"ready": False, "reasons": ["no broker"]}),
            '503 from the service: {"ready":false,"reasons":["no broker"]}',
        ),
        (raises(httpx.ConnectError), "cannot be reached: ConnectError"),
    ],
)
async def test_health_says_what_the_service_says(answer: Answer, message: str | None) -> None:
    found = await provider(answer).health()
    assert (found.ok, found.message) == (message is None, message)

"""The store over HTTP: another service that answers the routes of memory documents, such as another Crew Journal.

Routes: ``POST /memory/write``, ``POST /memory/search``, ``GET`` and ``POST /v1/memory/document[/retract]``, ``GET
/v1/memory/documents``, ``GET /readyz``. Invariant: callers get only errors of our own, never texts of the HTTP library;
every write has an id, so that repeating it is safe.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final, Literal, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from ...schemas.core.errors import (
    BackendFailed,
    CrewJournalError,
    DocumentError,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    Unavailable,
    UpstreamTimeout,
)
from ...schemas.core.faults import error_of
from ...schemas.documents.operations import (
    DocumentAnswer,
    DocumentHit,
    DocumentsAnswer,
    DocumentSearchAnswer,
    DocumentSearchRequest,
    DocumentWrittenAnswer,
)
from ...schemas.documents.provider import RECALL_LIMIT_MAX, SNIPPET_CHARS
from ...schemas.documents.rules import Scope, scope_of
from ..desk import Caller
from .adapters import text_answer
from .addressing import DocumentAddress, file_scope
from .answers import written_answer
from .drafts import Draft

TIMEOUT_S: Final = 10.0
"""Seconds for one answer of a provider; an ordinary write takes about 5 ms."""
_A = TypeVar("_A", bound=BaseModel)


def http_client(url: str, token: str, *, timeout_s: float = TIMEOUT_S) -> httpx.AsyncClient:
    """The connections of providers to one service; close them with ``aclose``."""
    return httpx.AsyncClient(
        base_url=url.rstrip("/"), headers={"Authorization": f"Bearer {token}"}, timeout=timeout_s, trust_env=False
    )


class _Hit(BaseModel):
    file: str
    snippet: str
    score: float = 0.0
    source: Literal["agent", "crew", "workspace"] = "agent"
    line: int | None = None


class _Found(BaseModel):
    results: tuple[_Hit, ...]
    quarantined: tuple[str, ...] = ()


class HttpStore:
    """Memory documents behind another service; ``drafts.DocumentStore``.

    Every method raises the service's refusals, UpstreamTimeout if the service does not answer in time, and
    BackendFailed if it cannot be reached or fails. A write that timed out may have happened; repeating it with the same
    id is safe.

    Args:
        http: The HTTP client, with a token that may read and write the documents of every caller.
    """

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def read(
        self, caller: Caller, address: DocumentAddress, _version: int | None = None, _as_of: int | None = None
    ) -> DocumentAnswer:
        """The present text."""
        found = await self._ask("GET", "/v1/memory/document", DocumentAnswer, _document(caller, address))
        bad = found.quarantined
        finding = None if bad is None else f"{bad.category}/{bad.pattern}"
        return text_answer(address, "" if finding else found.content, finding, found.sha256, found.bytes)

    async def write(self, caller: Caller, draft: Draft) -> DocumentWrittenAnswer:
        """Write a document; returns once the service confirms that it is durable."""
        body = {
            **_document(caller, draft.address),
            "mode": "append" if draft.appends else "replace",
            "content": draft.content,
            "expected_sha256": draft.expected_sha256,
            "write_id": draft.write_id,
        }
        wrote = await self._ask("POST", "/memory/write", DocumentWrittenAnswer, body)
        return written_answer(draft, 0, wrote.bytes, readable=False)

    async def retract(self, caller: Caller, draft: Draft) -> DocumentWrittenAnswer:
        """Retract a document; the service can restore it."""
        body = {**_document(caller, draft.address), "reason": "forgotten through a memory provider"}
        try:
            gone = await self._ask("POST", "/v1/memory/document/retract", DocumentWrittenAnswer, body)
        except NotFound:
            return written_answer(draft, 0, 0, duplicate=True, readable=False)
        return written_answer(draft, 0, 0, duplicate=gone.duplicate, readable=False)

    async def search(self, caller: Caller, request: DocumentSearchRequest) -> DocumentSearchAnswer:
        """Search."""
        searched = file_scope(caller.principal, request.scope, request.agent_id, request.crew_id)
        limit = min(request.hits_wanted, RECALL_LIMIT_MAX)
        owner = _owner(caller, searched.agent_id, searched.crew_id)
        body = {**owner, "query": request.query, "limit": limit, "scope": request.scope, "tier": request.tier}
        found = await self._ask("POST", "/memory/search", _Found, body)
        best = max((abs(hit.score) for hit in found.results), default=0.0)
        hits = tuple(
            DocumentHit(
                file=hit.file,
                snippet=hit.snippet[:SNIPPET_CHARS],
                score=-abs(hit.score) / best if best else -1.0,
                source=hit.source,
                line=hit.line or 1,
                heading="",
            )
            for hit in found.results[:limit]
        )
        return DocumentSearchAnswer(results=hits, count=len(hits), quarantined=found.quarantined, view_seq=0)

    async def labels(self, caller: Caller, owner: str) -> tuple[str, ...]:
        """The labels of an owner's documents that have a text, sorted."""
        scope, name = scope_of(owner)
        named = _owner(caller, name if scope is Scope.AGENT else None, name if scope is Scope.CREW else None)
        found = await self._ask("GET", "/v1/memory/documents", DocumentsAnswer, {**named, "scope": scope.value})
        return tuple(sorted(listed.id for listed in found.documents if listed.owner == owner and listed.bytes))

    async def trouble(self, caller: Caller) -> str | None:
        """Why the service does not follow the protocol: the token, its rights, the store behind it, or the URL."""
        principal = caller.principal
        owner = _owner(caller, principal.agent_id, principal.crew_id)
        try:
            named = {name: value for name, value in owner.items() if value is not None}
            answer = await self._http.get("/v1/memory/documents", params={**named, "tier": "AGENT"})
            if answer.is_success:
                DocumentsAnswer.model_validate_json(answer.content)
                return None
        except httpx.HTTPError as error:
            return f"cannot be reached: {type(error).__name__}"
        except ValidationError:
            return "the answer is not that of a memory service: check the URL"
        if answer.status_code == HTTPStatus.NOT_IMPLEMENTED:  # a service with files has no list; the token is accepted
            return None
        return f"{answer.status_code} from the service: {answer.text[:200]}"

    async def _ask(self, method: str, path: str, answer: type[_A], fields: dict[str, Any]) -> _A:
        given = {name: value for name, value in fields.items() if value is not None}
        sent: dict[str, Any] = {"params": given} if method == "GET" else {"json": given}
        try:
            response = await self._http.request(method, path, **sent)
            if response.is_error:
                raise _named_error(response)
            return answer.model_validate_json(response.content)
        except httpx.TimeoutException:
            raise UpstreamTimeout(
                f"the memory service did not answer {path} in time", hint="try again with the same write_id"
            ) from None
        except httpx.HTTPError as error:
            raise BackendFailed(
                f"the memory service cannot be reached: {type(error).__name__}",
                hint="does it run, and is CREW_JOURNAL_MEMORY_PROVIDER_URL right?",
            ) from None
        except ValidationError:
            raise BackendFailed(
                f"the memory service answered {path} with something other than {answer.__name__}",
                hint="it must answer as docs/providers.md says",
            ) from None


def _owner(caller: Caller, agent_id: str | None, crew_id: str | None) -> dict[str, Any]:
    return {"workspace_id": caller.workspace_id, "agent_id": agent_id, "crew_id": crew_id}


def _document(caller: Caller, address: DocumentAddress) -> dict[str, Any]:
    """The fields that name a document: its owner and, for the rest, the caller's agent and crew."""
    principal = caller.principal
    agent_id = address.name if address.scope is Scope.AGENT else principal.agent_id
    crew_id = address.name if address.scope is Scope.CREW else principal.crew_id
    owner = _owner(caller, agent_id, crew_id)
    return {**owner, "tier": address.tier, "key": address.key, "scope": address.scope.value}


def _named_error(response: httpx.Response) -> CrewJournalError:
    """The named error for an answer."""
    try:
        problem = response.json()
    except ValueError:
        problem = {}
    error = error_of(response.status_code, problem if isinstance(problem, dict) else {})
    given: dict[str, Any] = {"hint": error.hint, "field": error.field}
    if isinstance(error, DocumentError | NotAllowed | NotFound | UpstreamTimeout | BackendFailed):
        return error
    if isinstance(error, NotAuthenticated):
        return NotAllowed(f"the memory service refuses the token: {error.message}", **given)
    if isinstance(error, Unavailable) or response.is_server_error:
        return BackendFailed(f"the memory service fails: {error.message}", **given)
    return DocumentError(error.message, **given)

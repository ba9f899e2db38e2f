"""A provider over HTTP: another service that answers the routes of memory documents, such as another Crew Journal.

Routes: ``POST /memory/write``, ``POST /memory/search``, ``GET`` and ``POST /v1/memory/document[/retract]``,
``GET /v1/memory/documents``, ``GET /readyz``.
Invariant: what leaves is a named error, never a text of the HTTP library; every write has an id, so that sending it again is
safe. Scope, role and the required key of ``daily``, which the routes do not know or default, are checked here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from ....schemas.errors import (
    BackendFailed,
    CrewJournalError,
    DocumentError,
    MissingKey,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    Unavailable,
    UpstreamTimeout,
)
from ....schemas.faults import error_of
from ....schemas.ids import uuid7_hex
from ....schemas.operations.documents import DocumentAnswer, DocumentsAnswer, DocumentWrittenAnswer
from ....schemas.provider import (
    RECALL_LIMIT_MAX,
    SNIPPET_CHARS,
    ForgetRequest,
    ForgetResult,
    HealthStatus,
    LabelsRequest,
    LabelsResult,
    ProviderScope,
    ReadRequest,
    ReadResult,
    RecallRequest,
    RecallResult,
    RecallSnippet,
    RetainRequest,
    RetainResult,
)
from ....schemas.rules.tiers import TIERS, KeyKind, Scope, owner_of
from ..documents.addressing import rule_of
from .checks import Place, check_role, check_scope, health_of, owner_to_list, place_to_forget, place_to_read

TIMEOUT_S: Final = 10.0
"""Seconds for one answer of a provider; an ordinary write takes some 5 ms."""
CASCADE: Final = "ask the service behind this provider for its erasure API"
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
    source: str = "agent"
    line: int | None = None


class _Found(BaseModel):
    results: tuple[_Hit, ...]
    quarantined: tuple[str, ...] = ()


class HttpProvider:
    """Memory documents behind another service.

    Args:
        http: Its connections, with a token that may read and write the documents of ``scope``.
        scope: Whose documents.
        clock: The time, UTC.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        scope: ProviderScope,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._http = http
        self._scope = scope
        self._clock = clock

    async def retain(self, asked: RetainRequest) -> RetainResult:
        """Write a document; returns once the service says that it is durable.

        Raises:
            DocumentError: What the service refuses.
            UpstreamTimeout: If it does not answer in time; the write may have happened, and sending its id again is safe.
            BackendFailed: If it cannot be reached, or fails.
        """
        check_scope(self._scope, asked)
        scope, rule = asked.scope, TIERS.get(asked.tier)
        if rule is not None and rule.writable:
            if rule.key is KeyKind.DATE and asked.key is None:  # the route takes today
                raise MissingKey(f"tier {asked.tier} needs a key", hint="send key: a date", field="key")
            scope = scope or next(iter(rule.writers)).value
            if scope in rule.writers:
                check_role(self._scope, asked.tier, rule, Scope(scope))
        body = {
            **self._owner(),
            "tier": asked.tier,
            "key": asked.key,
            "scope": scope,
            "mode": asked.mode,
            "content": asked.content,
            "expected_sha256": asked.expected_sha256,
            "write_id": asked.write_id or f"w_{uuid7_hex()}",
        }
        wrote = await self._ask("POST", "/memory/write", DocumentWrittenAnswer, body)
        return RetainResult(id=wrote.id, bytes=wrote.bytes)

    async def recall(self, asked: RecallRequest) -> RecallResult:
        """Search; a score is the share of the best hit's.

        Raises:
            DocumentError: What the service refuses.
            UpstreamTimeout: If it does not answer in time.
            BackendFailed: If it cannot be reached, or fails.
        """
        check_scope(self._scope, asked)
        if asked.tier is not None:
            rule_of(asked.tier)
        limit = max(1, min(asked.limit, RECALL_LIMIT_MAX))
        body = {**self._owner(), "query": asked.query, "limit": limit, "scope": asked.scope, "tier": asked.tier}
        found = await self._ask("POST", "/memory/search", _Found, body)
        best = max((abs(hit.score) for hit in found.results), default=0.0)
        hits = [
            RecallSnippet(
                source=hit.file,
                snippet=hit.snippet[:SNIPPET_CHARS],
                line=hit.line,
                score=abs(hit.score) / best if best else 1.0,
                scope=hit.source,
            )
            for hit in found.results[:limit]
        ]
        return RecallResult(hits=tuple(hits), quarantined=found.quarantined)

    async def forget(self, asked: ForgetRequest) -> ForgetResult:
        """Retract a document; the service can restore it. A call that is cancelled before it is sent retracts nothing.

        Raises:
            SelectorConflict: Unless exactly one of id and data subject is given.
            CascadeUnsupported: If it is the data subject.
            UpstreamTimeout: If the service does not answer in time.
            BackendFailed: If it cannot be reached, or fails.
        """
        place = place_to_forget(self._scope, asked, cascade=CASCADE)
        await asyncio.sleep(0)  # a cancellation is heard before anything is sent
        body = {**self._named(place), "reason": "forgotten through a memory provider"}
        try:
            gone = await self._ask("POST", "/v1/memory/document/retract", DocumentWrittenAnswer, body)
        except NotFound:
            return ForgetResult(removed=0)
        return ForgetResult(removed=int(not gone.duplicate))

    async def read(self, asked: ReadRequest) -> ReadResult:
        """Read a document; raises as ``recall``."""
        place = place_to_read(self._scope, asked)
        found = await self._ask("GET", "/v1/memory/document", DocumentAnswer, self._named(place))
        bad = found.quarantined
        finding = None if bad is None else f"{bad.category}/{bad.pattern}"
        content = "" if finding else found.content
        return ReadResult(id=found.id, content=content, finding=finding, sha256=found.sha256, bytes=found.bytes)

    async def labels(self, asked: LabelsRequest) -> LabelsResult:
        """Name the documents of a scope; raises as ``recall``."""
        owner = owner_of(*owner_to_list(self._scope, asked))
        found = await self._ask("GET", "/v1/memory/documents", DocumentsAnswer, {**self._owner(), "scope": asked.scope})
        return LabelsResult(ids=tuple(sorted(one.id for one in found.documents if one.owner == owner and one.bytes)))

    async def health(self) -> HealthStatus:
        """Whether the service answers the protocol: the token, its rights and the memory behind it, not the URL alone."""
        return await health_of(self._ready, self._clock)

    async def _ready(self) -> str | None:
        try:
            owner = {name: value for name, value in self._owner().items() if value is not None}
            answer = await self._http.get("/v1/memory/documents", params={**owner, "tier": "AGENT"})
            if answer.is_success:
                DocumentsAnswer.model_validate_json(answer.content)
                return None
        except httpx.HTTPError as error:
            return f"cannot be reached: {type(error).__name__}"
        except ValidationError:
            return "the answer is not that of a memory service: check the URL"
        if (
            answer.status_code == HTTPStatus.NOT_IMPLEMENTED
        ):  # its memory is files, which have no list: the token is accepted
            return None
        return f"{answer.status_code} from the service: {answer.text[:200]}"

    def _owner(self) -> dict[str, Any]:
        scope = self._scope
        return {"workspace_id": scope.workspace_id, "agent_id": scope.agent_id, "crew_id": scope.crew_id}

    def _named(self, place: Place) -> dict[str, Any]:
        return {**self._owner(), "tier": place.tier, "key": place.key, "scope": place.scope.value}

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

"""``/v1/memory_stores``: the memory-stores API of Anthropic's SDK over the files of agents (docs/files.md).

Invariant: names, shapes and error types are the same as in ``anthropic.resources.beta.memory_stores``; requests without
a counterpart are answered with 501. The workspace comes from the token or, for a token of all, from the header
``anthropic-workspace-id``.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...schemas.access.tables import AgentRow
from ...schemas.core.errors import CrewJournalError, DocumentConflict, InvalidQuery, NoCounterpart, PathTaken
from ...schemas.core.timestamps import format_ms, parse_ts, to_ms
from ..desk import Caller
from ..documents.files import STORE, VERSION, MemoryStores, Stored, StoreVersion, VersionFilter, memory_id_of
from .bodies import answer, read_model, trace_id_of
from .route import Params, principal_of, services_of, whole_number

PATH: Final = "/v1/memory_stores"
PAGE: Final = 20
PAGE_MAX: Final = 100
FULL_PAGE_MAX: Final = 20
"""Maximum items of a page with texts."""
_TIMES: Final = ("created_at[gte]", "created_at[lte]")
_ACTORS: Final = {"api_key_id": "user", "session_id": "agent"}
_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}
_Work = Callable[[MemoryStores, Caller, Request], Awaitable[dict[str, Any]]]


class _Create(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    path: str
    content: str | None


class _Precondition(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    type: Literal["content_sha256"]
    content_sha256: str


class _Update(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    path: str | None = None
    content: str | None = None
    precondition: _Precondition | None = None


async def list_stores(stores: MemoryStores, caller: Caller, request: Request) -> dict[str, Any]:
    """Stores, by id."""
    params = _params(request, "include_archived", "limit", "page", *_TIMES)
    first, last = _times(params)
    rows = [row for row in await stores.stores(caller) if first <= row.registered_ms <= last]
    after = _cursor(params)
    rows = [row for row in rows if row.agent_id > after]
    limit = _limit(params)
    return _page([_store(row) for row in rows[:limit]], rows[limit - 1].agent_id if len(rows) > limit else None)


async def get_store(stores: MemoryStores, caller: Caller, request: Request) -> dict[str, Any]:
    """A store."""
    _params(request)
    return _store(await stores.store(caller, request.path_params["store"]))


async def list_memories(stores: MemoryStores, caller: Caller, request: Request) -> dict[str, Any]:
    """Memories, by path."""
    params = _params(request, "depth", "limit", "page", "path_prefix", "view")
    full, prefix = _full(params, default="basic"), params.text("path_prefix") or "/"
    if not (prefix.startswith("/") and prefix.endswith("/")):
        raise InvalidQuery("path_prefix must start and end with /", hint="use /notes/", field="path_prefix")
    store, after, limit = request.path_params["store"], _cursor(params), _limit(params, full=full)
    paths = [path for path in await stores.paths(caller, store, prefix, params.whole("depth") or 0) if path > after]
    page = paths[:limit]
    rows = await stores.at_paths(caller, store, page)
    items = [
        {"type": "memory_prefix", "path": path} if path.endswith("/") else _memory(rows[path], store, full=full)
        for path in page
        if path.endswith("/") or path in rows
    ]
    return _page(items, page[-1] if len(paths) > limit else None)


async def create_memory(stores: MemoryStores, caller: Caller, request: Request) -> dict[str, Any]:
    """Create a memory."""
    full, store = _full(_params(request, "view"), default="basic"), request.path_params["store"]
    body = await read_model(request, _Create, services_of(request).limits.body_bytes)
    return _memory(await stores.create(caller, store, body.path, body.content or ""), store, full=full)


async def get_memory(stores: MemoryStores, caller: Caller, request: Request) -> dict[str, Any]:
    """A memory."""
    full, store = _full(_params(request, "view"), default="full"), request.path_params["store"]
    return _memory(await stores.memory(caller, store, request.path_params["memory"]), store, full=full)


async def update_memory(stores: MemoryStores, caller: Caller, request: Request) -> dict[str, Any]:
    """Change a memory."""
    full, store = _full(_params(request, "view"), default="basic"), request.path_params["store"]
    body = await read_model(request, _Update, services_of(request).limits.body_bytes)
    sha256 = None if body.precondition is None else body.precondition.content_sha256
    memory = request.path_params["memory"]
    return _memory(await stores.update(caller, store, memory, body.content, body.path, sha256), store, full=full)


async def delete_memory(stores: MemoryStores, caller: Caller, request: Request) -> dict[str, Any]:
    """Retract a memory."""
    sha256 = _params(request, "expected_content_sha256").text("expected_content_sha256")
    memory = request.path_params["memory"]
    await stores.delete(caller, request.path_params["store"], memory, sha256)
    return {"type": "memory_deleted", "id": memory}


async def list_versions(stores: MemoryStores, caller: Caller, request: Request) -> dict[str, Any]:
    """Versions, newest first."""
    params = _params(
        request, "limit", "memory_id", "operation", "page", "service_account_id", "view", *_ACTORS, *_TIMES
    )
    if params.text("service_account_id") is not None:
        raise NoCounterpart(
            "there are no service accounts", hint="filter by api_key_id (tokens) or session_id (agents)"
        )
    actors = [(kind, name) for field, kind in _ACTORS.items() if (name := params.text(field)) is not None]
    first, last = _times(params)
    after = _cursor(params)
    wanted = VersionFilter(
        memory_id=params.text("memory_id"),
        operation=params.text("operation"),
        actor_type=actors[0][0] if actors else None,
        actor_id=actors[0][1] if actors else None,
        from_ms=first,
        to_ms=last,
        before_seq=whole_number("page", after) if after else 2**62,
    )
    full = _full(params, default="basic")
    limit, store = _limit(params, full=full), request.path_params["store"]
    versions = await stores.versions(caller, store, wanted, limit + 1, full=full)
    more = str(versions[limit - 1].row.seq) if len(versions) > limit else None
    return _page([_version(version, store) for version in versions[:limit]], more)


async def get_version(stores: MemoryStores, caller: Caller, request: Request) -> dict[str, Any]:
    """A version."""
    full, store = _full(_params(request, "view"), default="full"), request.path_params["store"]
    return _version(await stores.version(caller, store, request.path_params["version"], full=full), store)


def _without_counterpart(why: str, instead: str) -> _Work:
    async def refuse(_stores: MemoryStores, _caller: Caller, _request: Request) -> dict[str, Any]:
        raise NoCounterpart(why, hint=instead)

    return refuse


def _store(row: AgentRow) -> dict[str, Any]:
    return {
        "type": "memory_store",
        "id": f"{STORE}{row.agent_id}",
        "name": row.name or row.agent_id,
        "description": "",
        "metadata": {},
        "created_at": format_ms(row.registered_ms),
        "updated_at": format_ms(row.updated_ms),
        "archived_at": None,
    }


def _memory(memory: Stored, store: str, *, full: bool) -> dict[str, Any]:
    row = memory.row
    return {
        "type": "memory",
        "id": memory_id_of(row.key),
        "memory_store_id": store,
        "memory_version_id": f"{VERSION}{row.seq}",
        "path": f"/{row.doc_key}",
        "content": memory.content if full else None,
        "content_sha256": row.sha256,
        "content_size_bytes": row.bytes,
        "created_at": format_ms(row.created_ms),
        "updated_at": format_ms(row.updated_ms),
    }


def _version(version: StoreVersion, store: str) -> dict[str, Any]:
    row, deleted = version.row, version.operation == "deleted"
    by_agent = row.actor_type == "agent"
    actor = {"type": "session_actor", "session_id": row.actor_id} if by_agent else None
    return {
        "type": "memory_version",
        "id": f"{VERSION}{row.seq}",
        "memory_id": version.memory_id,
        "memory_store_id": store,
        "operation": version.operation,
        "path": f"/{row.doc_key}",
        "content": version.content,
        "content_sha256": None if deleted else row.sha256,
        "content_size_bytes": None if deleted else row.bytes,
        "created_at": format_ms(row.published_ms),
        "created_by": actor or {"type": "api_actor", "api_key_id": row.actor_id},
        "redacted_at": None,
        "redacted_by": None,
    }


def _page(items: Sequence[dict[str, Any]], last: str | None) -> dict[str, Any]:
    token = None if last is None else base64.urlsafe_b64encode(last.encode()).decode()
    return {"data": list(items), "next_page": token}


def _params(request: Request, *names: str) -> Params:
    return Params(request, frozenset({*names, "beta"}))


def _cursor(params: Params) -> str:
    try:
        return base64.urlsafe_b64decode(params.text("page") or "").decode()
    except ValueError:
        raise InvalidQuery("page is not valid", hint="use next_page of the page before", field="page") from None


def _limit(params: Params, *, full: bool = False) -> int:
    limit = params.whole("limit")
    if limit is not None and not 1 <= limit <= PAGE_MAX:
        raise InvalidQuery(f"limit must be 1 to {PAGE_MAX}", hint="leave it out for 20", field="limit")
    return min(limit or PAGE, FULL_PAGE_MAX) if full else limit or PAGE


def _full(params: Params, *, default: str) -> bool:
    view = params.text("view") or default
    if view not in ("basic", "full"):
        raise InvalidQuery("view is not valid", hint="use basic or full", field="view")
    return view == "full"


def _times(params: Params) -> tuple[int, int]:
    bounds = [0, 2**62]
    for at, name in enumerate(_TIMES):
        if (text := params.text(name)) is not None:
            try:
                bounds[at] = to_ms(parse_ts(text))
            except ValueError:
                hint = "use RFC 3339 with an offset, 2026-05-14T09:30:00Z"
                raise InvalidQuery(f"{name} is not a time", hint=hint, field=name) from None
    return bounds[0], bounds[1]


def _endpoint(work: _Work) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            principal = principal_of(request)
            caller = Caller.of(principal, request.headers.get("anthropic-workspace-id"))
            return answer(await work(services_of(request).stores, caller, request))
        except CrewJournalError as error:
            return _refused(error, trace_id_of(request))

    return endpoint


def _refused(error: CrewJournalError, trace_id: str) -> Response:
    """An error in the SDK's format; 422 becomes 400, and a conflict is marked as not to be resent."""
    status = HTTPStatus.BAD_REQUEST if error.status == HTTPStatus.UNPROCESSABLE_ENTITY else error.status
    kind = _TYPES.get(status, "api_error")
    if isinstance(error, PathTaken):
        kind = "memory_path_conflict_error"
    elif isinstance(error, DocumentConflict):
        kind = "memory_precondition_failed_error"
    message = f"{error.message}: {error.hint}" if error.hint else error.message
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": trace_id}
    response = answer(body, status)
    response.headers["request-id"] = trace_id
    if status in (HTTPStatus.CONFLICT, HTTPStatus.NOT_IMPLEMENTED):
        response.headers["x-should-retry"] = "false"
    return response


_OF_AGENT: Final = "a memory store is the files of an agent"
_STORE: Final = PATH + "/{store}"
_MEMORY: Final = _STORE + "/memories/{memory}"
_VERSION: Final = _STORE + "/memory_versions/{version}"
_ROUTES: Final[tuple[tuple[str, str, _Work], ...]] = (
    ("GET", PATH, list_stores),
    ("POST", PATH, _without_counterpart(_OF_AGENT, "register the agent with PUT /v1/agents/{agent_id}")),
    ("GET", _STORE, get_store),
    ("POST", _STORE, _without_counterpart(_OF_AGENT, "change the agent with POST /v1/agents/{agent_id}")),
    ("DELETE", _STORE, _without_counterpart("a memory store cannot be deleted", "delete its memories")),
    ("POST", _STORE + "/archive", _without_counterpart("a memory store cannot be archived", "delete its memories")),
    ("GET", _STORE + "/memories", list_memories),
    ("POST", _STORE + "/memories", create_memory),
    ("GET", _MEMORY, get_memory),
    ("POST", _MEMORY, update_memory),
    ("DELETE", _MEMORY, delete_memory),
    ("GET", _STORE + "/memory_versions", list_versions),
    ("GET", _VERSION, get_version),
    ("POST", _VERSION + "/redact", _without_counterpart("a version cannot be redacted", "delete the memory")),
)
MEMORY_STORE_ROUTES: Final = tuple(
    Route(path, _endpoint(work), methods=[method], name=f"memory_stores_{at}")
    for at, (method, path, work) in enumerate(_ROUTES)
)

"""Routes of long operations that answer with lines of JSON: rebuild, salvage, verify, backup, comparison of two models.

Invariant: operations on the whole node need an OWNER of all workspaces; the comparison is limited to one workspace.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, Final

import orjson
import structlog
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from ...schemas.core.entry import WorkspaceId
from ...schemas.core.errors import CrewJournalError
from ...schemas.core.limits import RECALL_K_MAX
from ...schemas.core.operation import Access
from ...schemas.core.principal import Principal
from ..desk import check_access
from ..problem import log_unexpected, problem_of, unexpected_problem
from .bodies import Stream, answer, read_model
from .openapi import ANY_OBJECT, inlined, json_body
from .problems import trace_id_of
from .route import RouteDescription, services_of

# Answers as lines of JSON: progress records, then a record with ``result`` or ``error``.


NDJSON_TYPE: Final = "application/x-ndjson"
LINES: Final[dict[str, Any]] = {
    "description": "Lines of JSON: progress, then one with result or error.",
    "content": {NDJSON_TYPE: {"schema": {"type": "string"}}},
}


def lines(request: Request, records: AsyncIterator[Mapping[str, Any]]) -> Response:
    """Stream the records; any error that ends them is the last line."""
    return Stream(_as_lines(records, trace_id_of(request)), NDJSON_TYPE)


async def _as_lines(records: AsyncIterator[Mapping[str, Any]], trace_id: str) -> AsyncGenerator[bytes]:
    try:
        async for record in records:
            yield orjson.dumps(dict(record)) + b"\n"
    except CrewJournalError as error:
        yield orjson.dumps({"error": problem_of(error, trace_id)}) + b"\n"
    except Exception as error:
        log_unexpected(error, trace_id)
        yield (
            orjson.dumps({"error": unexpected_problem(trace_id)}) + b"\n"
        )  # the answer has begun, so that no status can report the error


log = structlog.get_logger(__name__)


class RebuildRequest(BaseModel):
    """The projections to rebuild (all if absent), and whether the loss of journal entries is accepted."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    projections: tuple[str, ...] | None = Field(default=None, min_length=1, max_length=100)
    accept_loss: bool = Field(default=False, description="Only for all; the old views file is kept.")


class CompareRequest(BaseModel):
    """The two models to compare on the logged queries of a workspace."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    one: str = Field(min_length=1, max_length=96)
    other: str = Field(min_length=1, max_length=96)
    workspace_id: WorkspaceId | None = None
    queries: int = Field(default=100, ge=1, le=1_000)
    k: int = Field(default=10, ge=1, le=RECALL_K_MAX)
    recipe: str | None = Field(default=None, max_length=64)


async def rebuild(request: Request, principal: Principal) -> Response:
    """Build views beside the live ones, then swap."""
    check_access(Access.NODE_OWNER, principal)
    services = services_of(request)
    body = await read_model(request, RebuildRequest, services.limits.body_bytes)
    log.info("admin.rebuild", token_id=principal.token_id, accept_loss=body.accept_loss)
    records = services.operations.rebuild(body.projections, accept_loss=body.accept_loss, actor=principal.token_id)
    return lines(request, records)


async def salvage(request: Request, principal: Principal) -> Response:
    """Stream the lost entries that the views still have."""
    check_access(Access.NODE_OWNER, principal)
    log.info("admin.salvage", token_id=principal.token_id)
    return lines(request, services_of(request).operations.salvage())


async def backup(request: Request, principal: Principal) -> Response:
    """Stream a backup of the node's streams."""
    check_access(Access.NODE_OWNER, principal)
    log.info("admin.backup", token_id=principal.token_id)
    return lines(request, services_of(request).operations.backup())


async def verify(request: Request, principal: Principal) -> Response:
    """Compare the live views with a fresh rebuild."""
    check_access(Access.NODE_OWNER, principal)
    log.info("admin.verify", token_id=principal.token_id)
    return lines(request, services_of(request).operations.verify())


async def embedder(request: Request, principal: Principal) -> Response:
    """The embedder and its last outcome."""
    check_access(Access.ADMINISTRATOR, principal)
    return answer(await services_of(request).status.embedder())


async def compare(request: Request, principal: Principal) -> Response:
    """Compare the results of two models."""
    check_access(Access.ADMINISTRATOR, principal)
    services = services_of(request)
    body = await read_model(request, CompareRequest, services.limits.body_bytes)
    workspace = principal.workspace(body.workspace_id)
    records = await services.models.compare(
        workspace, (body.one, body.other), queries=body.queries, k=body.k, recipe=body.recipe
    )
    return lines(request, records)


ADMIN_ROUTES: Final = (
    RouteDescription(
        route="POST /v1/admin/rebuild",
        name="rebuild",
        tag="admin",
        summary="Rebuild views from the journal",
        description="Builds beside the live views, then swaps. Streams progress as lines of JSON. For an OWNER of all "
        "workspaces.",
        serve=rebuild,
        answers={"200": LINES},
        errors=(413, 422),
        extra=json_body(inlined(RebuildRequest.model_json_schema()), required=False),
    ),
    RouteDescription(
        route="POST /v1/admin/salvage",
        name="salvage",
        tag="admin",
        summary="Entries that the journal has lost and the views still have",
        description="Lines of JSON, each with `entry` (may be imported) or `decision` (the service's own); the last "
        "has counts.",
        serve=salvage,
        answers={"200": LINES},
    ),
    RouteDescription(
        route="POST /v1/admin/backup",
        name="backup",
        tag="admin",
        summary="The streams, as one consistent copy",
        description="Lines of JSON: `stream` with configuration and state, then its bytes as `chunk` (base64); the last "
        "has `result`. `crew-journal backup` writes them to a file. For an OWNER of all workspaces.",
        serve=backup,
        answers={"200": LINES},
    ),
    RouteDescription(
        route="POST /v1/admin/verify",
        name="verify",
        tag="admin",
        summary="Compare the live views with a fresh rebuild",
        description="Streams progress as lines of JSON; the last one names the first difference, if there is one.",
        serve=verify,
        answers={"200": LINES},
    ),
    RouteDescription(
        route="GET /v1/admin/embedder",
        name="embedder_status",
        tag="admin",
        summary="The embedder and its last outcome",
        description="Shows the outcome of the last call, not the configuration.",
        serve=embedder,
        answers=ANY_OBJECT,
    ),
    RouteDescription(
        route="POST /v1/admin/embeddings/compare",
        name="compare_models",
        tag="admin",
        summary="How far two models agree on the queries that were asked",
        description="Streams progress as lines of JSON; the last one holds the figures. Nothing is recorded or switched.",
        serve=compare,
        answers={"200": LINES},
        errors=(404, 413, 422),
        extra=json_body(inlined(CompareRequest.model_json_schema()), required=True),
    ),
)

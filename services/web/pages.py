"""The content of each page: a function from a request to the values of its template.

Invariant: a page runs the same operations as HTTP with the same principal, so that it shows only data that the token
may read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request

from ...schemas.access.operations import WORKSPACES
from ...schemas.core.entry import Priority, Severity
from ...schemas.core.errors import CrewJournalError
from ...schemas.core.operation import Operation
from ...schemas.core.principal import Principal
from ...schemas.health.events import HealthRecorded
from ...schemas.health.operations import HEALTH
from ...schemas.models.operations import EMBEDDING_MODELS
from ...schemas.operate.operations import DEAD_LETTERS
from ...schemas.recall.operations import RECALL
from ...schemas.relations.operations import GRAPH
from ..entries.filters import Cursor, parse_filters
from ..http.ports import AppServices
from ..times import moment_of

PAGE_ENTRIES: Final = 50
OF_SWEEPS: Final = ("sweep.*", HealthRecorded.ENTRY_TYPE)
"""Records that sweeps bring; the overview leaves them out."""
HEALTH_DAYS: Final = 60
RECALL_K: Final = 10
FILTERS: Final = ("q", "types", "severities", "agent_id", "crew_id", "trace_id", "since", "until", "priorities")
"""Filters of the list, by the names they have in ``GET /v1/journal``."""
TIMES: Final = ("since", "until")
"""Filters for which people may write times in informal formats."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One request for a page.

    Attributes:
        workspace: The workspace in the address; None if it names none.
    """

    request: Request
    services: AppServices
    principal: Principal
    workspace: str | None

    def asked(self, name: str) -> str | None:
        """A parameter of the address; None if it is absent or blank."""
        return self.request.query_params.get(name, "").strip() or None

    async def run(self, operation: Operation[Any, Any], **fields: Any) -> Any:
        """Answer an operation with the visitor's principal; fields that are None are left out."""
        given = {name: value for name, value in fields.items() if value is not None}
        if "workspace_id" in operation.request.model_fields and self.workspace is not None:
            given["workspace_id"] = self.workspace
        return await self.services.desk.run(operation, self.principal, given)


Build = Callable[[Visit], Awaitable[dict[str, Any]]]
Form = Callable[[Visit], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its path, its title, its template, and how its values are found.

    Attributes:
        key: The key that opens it from every other page; empty for none.
        administrators: Whether only OWNER and ADMIN may see it.
        form: The values of its form, which is also shown with an error; None if the page has no form.
    """

    path: str
    title: str
    template: str
    build: Build
    key: str = ""
    administrators: bool = False
    form: Form | None = None


async def overview(visit: Visit) -> dict[str, Any]:
    """The newest entries, the health of the memory, and whether the node can serve."""
    newest = await _entries(visit, [("exclude_types", entry_type) for entry_type in OF_SWEEPS], None, 12)
    return {**newest, **await status(visit), **await health(visit)}


async def journal(visit: Visit) -> dict[str, Any]:
    """Entries that pass the filters of the address, newest first, a page at a time."""
    read = [
        (name, moment_of(value, name, end=name == "until") if name in TIMES else value)
        for name, value in _given(visit).items()
    ]
    return await _entries(visit, read, visit.asked("cursor"), PAGE_ENTRIES)


def journal_form(visit: Visit) -> dict[str, Any]:
    """The filters of the address, and the severities to choose from."""
    return {"given": _given(visit), "severities": [severity.value for severity in Severity]}


def _given(visit: Visit) -> dict[str, str]:
    return {name: value for name in FILTERS if (value := visit.asked(name)) is not None}


async def _entries(visit: Visit, given: list[tuple[str, str]], cursor: str | None, limit: int) -> dict[str, Any]:
    page = await visit.services.queries.list(
        visit.principal,
        parse_filters(given),
        workspace=visit.workspace,
        cursor=None if cursor is None else Cursor.parse(cursor),
        limit=limit,
    )
    return {"entries": [entry.record for entry in page.entries], "next_cursor": page.next_cursor}


async def entry(visit: Visit) -> dict[str, Any]:
    """One entry and its related entries."""
    entry_id = visit.request.path_params["entry_id"]
    stored = await visit.services.queries.get(
        visit.principal, entry_id, workspace=visit.workspace, include_archive=True
    )
    return {
        "entry": stored.entry.record,
        "graph": await visit.run(GRAPH, entry_id=entry_id),
        "priorities": [priority.value for priority in Priority],
    }


async def recall(visit: Visit) -> dict[str, Any]:
    """The hits of a question, each with its confidence, its reason, and each rule's share in its rank."""
    query = visit.asked("query")
    if query is None:
        return {"answer": None}
    fields = {name: visit.asked(name) for name in ("recipe", "mode", "agent_id", "crew_id", "scope", "kinds")}
    answer = await visit.run(RECALL, query=query, k=RECALL_K, explain=True, **fields)
    shares = [abs(share) for hit in answer.hits if hit.explain for share in hit.explain.shares.values()]
    return {"answer": answer, "largest_share": max(shares, default=0.0)}


async def health(visit: Visit) -> dict[str, Any]:
    """The latest snapshot, and the snapshots of the last weeks."""
    return {"health": await visit.run(HEALTH, history=HEALTH_DAYS)}


async def status(visit: Visit) -> dict[str, Any]:
    """The state of the node; its own figures only for an OWNER of all workspaces."""
    owns_the_node = visit.principal.role.administers and visit.principal.workspace_id is None
    workspace = visit.principal.workspace_or_all(visit.workspace)
    shown = await visit.services.status.status(workspace_id=workspace, node=owns_the_node)
    return {"status": shown, "owns_the_node": owns_the_node}


async def letters(visit: Visit) -> dict[str, Any]:
    """Events that could not be folded."""
    return {"letters": (await visit.run(DEAD_LETTERS)).dead_letters}


async def models(visit: Visit) -> dict[str, Any]:
    """The embedding models, and how many vectors each lacks."""
    return {"models": (await visit.run(EMBEDDING_MODELS)).models}


async def workspaces(visit: Visit) -> tuple[str, ...]:
    """The workspaces to choose from; empty for a token of one workspace."""
    try:
        return tuple(workspace.workspace_id for workspace in (await visit.run(WORKSPACES)).workspaces)
    except CrewJournalError:  # not allowed, or the page itself shows the error
        return ()


PAGES: Final = (
    Page("/", "Overview", "overview.html", overview, key="o"),
    Page("/ui/journal", "Journal", "journal.html", journal, key="j", form=journal_form),
    Page("/ui/entry/{entry_id}", "Entry", "entry.html", entry),
    Page("/ui/recall", "Recall", "recall.html", recall, key="r", form=lambda _: {}),
    Page("/ui/health", "Health", "health.html", health, key="h"),
    Page("/ui/status", "Status", "status.html", status, key="s"),
    Page("/ui/letters", "Dead letters", "letters.html", letters, key="d", administrators=True),
    Page("/ui/models", "Models", "models.html", models, key="m", administrators=True),
)

"""Whether the workspace, agent or crew that a caller names exists.

Why: a misspelt name has no entries, and an empty answer would look like one that has none.
Invariant: only a name that no entry, registration or token has is refused, and the error lists the names that there are. An
agent without an entry is answered from a crew that exists: its first session has recorded nothing yet. A session that reads
its repository's crew alone (``crew_only``) may be the first one there: it is answered from documents, drawers and facts.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ...schemas.access.tables import AGENTS, CREWS, TOKENS
from ...schemas.core.errors import NotFound
from ...schemas.core.limits import DEFAULT_WORKSPACE
from ...schemas.core.ports import ViewReader
from ...schemas.core.principal import Principal
from ...schemas.entries.tables import ENTRIES
from ...schemas.recall.operations import RecallRequest
from .arrays import ABSENT
from .entry_index import HotIndex
from .scope import ScopeKind

NAMES_LISTED: Final = 20
"""Names in an error message."""
_IN: Final = "WHERE workspace_id = $1"
_NAMES: Final = {
    "workspace_id": f"SELECT workspace_id FROM {ENTRIES} WHERE NOT starts_with(workspace_id, '_') UNION "
    f"SELECT workspace_id FROM {TOKENS}",
    "agent_id": f"SELECT agent_id FROM {ENTRIES} {_IN} UNION SELECT agent_id FROM {AGENTS} {_IN} UNION "
    f"SELECT agent_id FROM {TOKENS} {_IN}",
    "crew_id": f"SELECT crew_id FROM {ENTRIES} {_IN} UNION SELECT crew_id FROM {AGENTS} {_IN} UNION "
    f"SELECT crew_id FROM {CREWS} {_IN} UNION SELECT crew_id FROM {TOKENS} {_IN}",
}


async def refuse_unknown_name(views: ViewReader, field: str, named: str, workspace_id: str) -> None:
    """Refuse a name that does not exist.

    Args:
        views: The views.
        field: ``workspace_id``, ``agent_id`` or ``crew_id``.
        named: The name.
        workspace_id: The workspace in which an agent or crew is looked for.

    Raises:
        NotFound: Naming the field, and what there is instead.
    """
    kind = field.removesuffix("_id")
    parameters = [] if kind == "workspace" else [workspace_id]
    rows = await asyncio.to_thread(views.rows, _NAMES[field], parameters)
    known = sorted(str(name) for (name,) in rows if name is not None)
    if named in known:
        return
    listed = ", ".join(known[:NAMES_LISTED]) + (" …" if len(known) > NAMES_LISTED else "")
    raise NotFound(
        f"there is no {kind} {named}" + ("" if kind == "workspace" else f" in workspace {workspace_id}"),
        hint=f"{kind}s that there are: {listed}" if known else f"there is no {kind} yet",
        field=field,
    )


async def refuse_unknown_workspace(views: ViewReader, principal: Principal, workspace_id: str) -> None:
    """Refuse the workspace of a request if it does not exist; called if the answer is empty.

    Raises:
        NotFound: Listing the workspaces that there are.
    """
    if principal.workspace_id is None and workspace_id != DEFAULT_WORKSPACE:  # a token's own need not have an entry
        await refuse_unknown_name(views, "workspace_id", workspace_id, workspace_id)


async def refuse_unknown(views: ViewReader, principal: Principal, request: RecallRequest, index: HotIndex) -> None:
    """Refuse a recall that names a workspace, agent or crew that does not exist; a name in the index needs no query.

    Raises:
        NotFound: Naming the field, and what there is instead.
    """
    if not principal.role.administers:
        return  # may name only the agent and crew of the token
    documents = index.documents
    workspace = request.workspace_id if principal.workspace_id is None else None
    reads_crew = request.crew_id is not None and request.scope in (None, ScopeKind.CREW_SHARED)
    for field, named, exists in (
        ("workspace_id", workspace, len(index) > 0 or workspace == DEFAULT_WORKSPACE),
        (
            "crew_id",
            None if request.crew_only else request.crew_id,
            documents.crews.find(request.crew_id or "") != ABSENT,
        ),
        ("agent_id", request.agent_id, reads_crew or documents.agents.find(request.agent_id or "") != ABSENT),
    ):
        if named and not exists:
            await refuse_unknown_name(views, field, named, index.workspace_id)

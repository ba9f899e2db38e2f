"""Whether there is what an administrator names as the scope of a recall.

Why: a misspelt agent, crew or workspace has no entries, and an empty answer would look like one that has no memories.
Invariant: only a name that no entry, registration or token has is refused, and the error lists the names that there are.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ....schemas.errors import NotFound
from ....schemas.operations.recall import RecallRequest
from ....schemas.ports import ViewReader
from ....schemas.principal import Principal
from ....schemas.settings import DEFAULT_WORKSPACE
from ....schemas.views import AGENTS, CREWS, ENTRIES
from .documents import ABSENT
from .index import HotIndex

NAMES_LISTED: Final = 20
"""Names in an error message."""
_IN: Final = "WHERE workspace_id = $1"
_NAMES: Final = {
    "workspace_id": f"SELECT workspace_id FROM {ENTRIES} WHERE NOT starts_with(workspace_id, '_') UNION "
    "SELECT workspace_id FROM tokens",
    "agent_id": f"SELECT agent_id FROM {ENTRIES} {_IN} UNION SELECT agent_id FROM {AGENTS} {_IN} UNION "
    f"SELECT agent_id FROM tokens {_IN}",
    "crew_id": f"SELECT crew_id FROM {ENTRIES} {_IN} UNION SELECT crew_id FROM {AGENTS} {_IN} UNION "
    f"SELECT crew_id FROM {CREWS} {_IN} UNION SELECT crew_id FROM tokens {_IN}",
}


async def refuse_unknown(views: ViewReader, principal: Principal, request: RecallRequest, index: HotIndex) -> None:
    """Refuse a recall that names a workspace, agent or crew that does not exist.

    Raises:
        NotFound: Naming the field, and what there is instead.
    """
    if not principal.role.administers:
        return  # may name nothing but what the token is bound to
    documents = index.documents
    workspace = request.workspace_id if principal.workspace_id is None else None
    for field, named, exists in (
        ("workspace_id", workspace, len(index) > 0 or workspace == DEFAULT_WORKSPACE),
        ("agent_id", request.agent_id, documents.agents.find(request.agent_id or "") != ABSENT),
        ("crew_id", request.crew_id, documents.crews.find(request.crew_id or "") != ABSENT),
    ):
        if not named or exists:
            continue
        parameters = [] if field == "workspace_id" else [index.workspace_id]
        rows = await asyncio.to_thread(views.rows, _NAMES[field], parameters)
        known = sorted(str(name) for (name,) in rows if name is not None)
        if named not in known:
            kind = field.removesuffix("_id")
            listed = ", ".join(known[:NAMES_LISTED]) + (" …" if len(known) > NAMES_LISTED else "")
            raise NotFound(
                f"there is no {kind} {named}" + ("" if kind == "workspace" else f" in workspace {index.workspace_id}"),
                hint=f"{kind}s that there are: {listed}" if known else f"there is no {kind} yet",
                field=field,
            )

"""Whether the agent or crew that an administrator names as the scope of a recall exists; one in the index needs no query."""

from __future__ import annotations

from ....schemas.operations.recall import RecallRequest
from ....schemas.ports import ViewReader
from ....schemas.principal import Principal
from ....schemas.settings import DEFAULT_WORKSPACE
from ..unknown_names import refuse_unknown_name
from .documents import ABSENT
from .index import HotIndex


async def refuse_unknown(views: ViewReader, principal: Principal, request: RecallRequest, index: HotIndex) -> None:
    """Refuse a recall that names a workspace, agent or crew that does not exist.

    Raises:
        NotFound: Naming the field, and what there is instead.
    """
    if not principal.role.administers:
        return  # may name only the agent and crew of the token
    documents = index.documents
    workspace = request.workspace_id if principal.workspace_id is None else None
    for field, named, exists in (
        ("workspace_id", workspace, len(index) > 0 or workspace == DEFAULT_WORKSPACE),
        ("agent_id", request.agent_id, documents.agents.find(request.agent_id or "") != ABSENT),
        ("crew_id", request.crew_id, documents.crews.find(request.crew_id or "") != ABSENT),
    ):
        if named and not exists:
            await refuse_unknown_name(views, field, named, index.workspace_id)

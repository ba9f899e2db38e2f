"""The first documents of an agent whose memory is turned on: AGENT.md, and CREW.md of its crew, empty.

Invariant: a document that was ever written stays as it is.
"""

from __future__ import annotations

import contextlib
from typing import Final

from ....schemas.errors import ViewsBehind
from ....schemas.ports import ViewReader
from ....schemas.rules.tiers import Scope, owner_of
from ....schemas.settings import MIN_SEQ_WAIT_S
from ....schemas.views import DOCUMENTS_PROJECTION
from ...desk import Caller
from ...journal.publishing.acks import WrongLastSequence
from .addressing import DocumentAddress
from .drafts import Draft
from .ports import DocumentPublisher

SOURCE: Final = "registration"


class Provision:
    """Writes them.

    Args:
        views: Awaited until the documents can be read.
        writer: Publishes them.
    """

    def __init__(self, views: ViewReader, writer: DocumentPublisher) -> None:
        self._views = views
        self._writer = writer

    async def provide(self, caller: Caller, agent_id: str, crew_id: str | None) -> None:
        """Write the documents that were never written; returns once they can be read.

        Raises:
            BrokerUnavailable: If no ack came within the bound; doing it again is safe.
        """
        wanted = [("AGENT", Scope.AGENT, agent_id)]
        if crew_id is not None:
            wanted.append(("CREW", Scope.CREW, crew_id))
        for tier, scope, name in wanted:
            draft = Draft(
                address=DocumentAddress(caller.workspace_id, scope, owner_of(scope, name), tier, None),
                source=SOURCE,
            )
            with contextlib.suppress(WrongLastSequence, ViewsBehind):  # it exists; it is stored and read a little later
                published = await self._writer.post_expecting(draft.message(caller), 0)
                await self._views.wait_for(published.seq, MIN_SEQ_WAIT_S, DOCUMENTS_PROJECTION)

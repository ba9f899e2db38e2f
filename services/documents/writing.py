"""Moves the text of a document to another document, and creates an agent's first documents.

Invariant: a moved copy names the writes from which its text was made and the data subject, so that an erasure also
finds the copy; writes that arrive during the move are moved, too.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from ...schemas.core.errors import DocumentConflict, ViewsBehind
from ...schemas.core.ports import ViewReader
from ...schemas.documents.events import DocumentAction
from ...schemas.documents.rules import Scope, owner_of
from ...schemas.documents.tables import DOCUMENTS_PROJECTION
from ...schemas.settings import MIN_SEQ_WAIT_S
from ..desk import Caller
from ..journal.publishing.acks import WrongLastSequence
from .addressing import DocumentAddress
from .drafts import Draft
from .journal_store import JournalStore
from .ports import DocumentPublisher

_ATTEMPTS: Final = 3
"""Maximum number of attempts to move a text that is written at the same time."""


async def move(store: JournalStore, caller: Caller, source: DocumentAddress, target: DocumentAddress) -> int:
    """Write the text of ``source`` to ``target`` and retract ``source``; returns the sequence of the last write.

    Raises:
        DocumentConflict: If ``target`` was written meanwhile, or ``source`` at every attempt.
        CrewJournalError: As ``JournalStore.write``.
    """
    there = await store.present(target)
    seq = there.seq if there else 0
    for attempt in range(1, _ATTEMPTS + 1):
        row = await store.present(source)
        if row is None or row.retracted:
            return seq
        causes, person = await asyncio.to_thread(store.reading.history.causes, source, row.base_seq, row.seq)
        copy = Draft(
            address=target,
            content=row.content,
            expected_seq=seq,
            data_subject_id=person,
            derived_from=causes,
            reason=f"renamed from {source.label}",
        )
        seq = (await store.write(caller, copy)).seq
        reason = f"renamed to {target.label}"
        gone = Draft(address=source, action=DocumentAction.RETRACT, expected_seq=row.seq, reason=reason)
        try:
            return (await store.retract(caller, gone)).seq
        except DocumentConflict:
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError


# The first documents of an agent whose memory is turned on: AGENT.md, and CREW.md of its crew, empty.


SOURCE: Final = "registration"


class Provision:
    """Creates an agent's first documents.

    Args:
        views: Used to wait until the documents can be read.
        writer: Publishes them.
    """

    def __init__(self, views: ViewReader, writer: DocumentPublisher) -> None:
        self._views = views
        self._writer = writer

    async def provide(self, caller: Caller, agent_id: str, crew_id: str | None) -> None:
        """Write the documents that were never written; returns once they can be read.

        Raises:
            BrokerUnavailable: If no ack came in time; repeating the call is safe.
        """
        wanted = [("AGENT", Scope.AGENT, agent_id)]
        if crew_id is not None:
            wanted.append(("CREW", Scope.CREW, crew_id))
        for tier, scope, name in wanted:
            draft = Draft(
                address=DocumentAddress(caller.workspace_id, scope, owner_of(scope, name), tier, None),
                source=SOURCE,
            )
            with contextlib.suppress(
                WrongLastSequence, ViewsBehind
            ):  # the document exists, or it is stored and can be read later
                published = await self._writer.post_expecting(draft.message(caller), 0)
                await self._views.wait_for(published.seq, MIN_SEQ_WAIT_S, DOCUMENTS_PROJECTION)

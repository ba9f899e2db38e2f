"""The use-cases of operator models: the statements of a person, forgetting them, and the person's consent.

Invariant: a person is named by the keyed hash; their own name is not stored here. OWNER, ADMIN and tokens that were granted
to speak for the person may ask; every answer comes after the views have folded the change.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ...schemas.errors import CrewJournalError, NotAllowed
from ...schemas.events.operators import OperatorDeleted, OperatorForgotten
from ...schemas.events.payload import ControlPayload
from ...schemas.events.workspaces import ConsentChanged
from ...schemas.grants import speaks_for
from ...schemas.operations.documents import RetractDocumentRequest
from ...schemas.operations.operators import (
    ConsentRequest,
    DeleteOperatorRequest,
    FactShown,
    ForgetOperatorRequest,
    OperatorAnswer,
    OperatorChangedAnswer,
    OperatorRequest,
    OperatorsAnswer,
    OperatorShown,
    OperatorsRequest,
    ProfileShown,
)
from ...schemas.ports import ViewReader
from ...schemas.principal import Role
from ...schemas.rules.operators import facts_of, slug_of, subject_hash
from ...schemas.rules.tiers import Scope, scope_of
from ...schemas.timestamps import format_ms
from ...schemas.views import DOCUMENTS
from ...schemas.views.operators import OPERATORS_PROJECTION, OperatorProfileRow
from ..desk import Caller
from ..journal.intake.recorder import Recorder
from ..shown import until_shown
from .documents.writing import Writing
from .learned import NOW
from .profiles import Opener, Profiles

_OWN_NOTES: Final = f"""SELECT owner, doc_key FROM {DOCUMENTS} WHERE workspace_id = ? AND tier = 'peers'
    AND doc_key IN (?, ?) AND NOT retracted"""


class Operators:
    """The use-cases.

    Args:
        views: The views.
        journal: Records decisions.
        writing: Retracts notes that agents wrote about a person.
        key: The key of the hash that names people.
    """

    def __init__(self, views: ViewReader, journal: Recorder, writing: Writing, *, key: bytes) -> None:
        self._views = views
        self._journal = journal
        self._writing = writing
        self._key = key
        self._profiles = Profiles(views)

    def slug(self, workspace_id: str, user: str) -> str:
        """The key of the documents about a person."""
        return slug_of(self._hash(workspace_id, user))

    def opener(self, workspace_id: str, user: str, agent_id: str | None, seq: int = NOW) -> Opener:
        """The profile of the person who opened the session, for a prompt; blocking."""
        return self._profiles.opener(workspace_id, user, self.slug(workspace_id, user), agent_id, seq)

    async def show(self, caller: Caller, asked: OperatorRequest) -> OperatorAnswer:
        """The model of a person, with the quotes that support it.

        Raises:
            NotAllowed: If the token may not speak for the person.
        """
        _check(caller, asked.user)
        view_seq = self._views.view_seq(OPERATORS_PROJECTION)
        workspace_id, slug = caller.workspace_id, self.slug(caller.workspace_id, asked.user)
        rows = await asyncio.to_thread(self._profiles.of, workspace_id, slug)
        consent = await asyncio.to_thread(self._profiles.consent, workspace_id, slug)
        profiles = [(row.agent_id, _shown(row)) for row in rows]
        return OperatorAnswer(
            slug=slug,
            opted_out=consent is not None and not consent.granted,
            consent_at=None if consent is None else format_ms(consent.changed_ms),
            model=next((shown for agent_id, shown in profiles if agent_id is None), None),
            cards=tuple(shown for agent_id, shown in profiles if agent_id is not None),
            view_seq=view_seq,
        )

    async def list(self, caller: Caller, _asked: OperatorsRequest) -> OperatorsAnswer:
        """The models of a workspace, by slug."""
        view_seq = self._views.view_seq(OPERATORS_PROJECTION)
        rows = await asyncio.to_thread(self._profiles.models, caller.workspace_id)
        return OperatorsAnswer(
            operators=tuple(
                OperatorShown(
                    slug=row.slug,
                    crew_id=row.crew_id,
                    keys=tuple(fact.key for fact in facts_of(row.facts)),
                    updated_at=format_ms(row.updated_ms),
                )
                for row in rows
            ),
            view_seq=view_seq,
        )

    async def forget(self, caller: Caller, asked: ForgetOperatorRequest) -> OperatorChangedAnswer:
        """Forget one key, or all, in the model and in every card; raises as ``show``."""
        payload = OperatorForgotten(subject_hash=self._hash(caller.workspace_id, asked.user), key=asked.key)
        return await self._change(caller, asked.user, payload, f"forget {asked.key or 'all keys'} of an operator")

    async def consent(self, caller: Caller, asked: ConsentRequest) -> OperatorChangedAnswer:
        """Record consent or its withdrawal, which removes model, cards and what agents wrote; raises as ``show``."""
        granted = asked.decision == "granted"
        payload = ConsentChanged(subject_hash=self._hash(caller.workspace_id, asked.user), granted=granted)
        said = "opted in" if granted else "opted out"
        answer = await self._change(caller, asked.user, payload, f"an operator {said}")
        return answer if granted else await self._retract_notes(caller, asked.user, answer)

    async def delete(self, caller: Caller, asked: DeleteOperatorRequest) -> OperatorChangedAnswer:
        """Remove model, cards, what agents wrote, and consent; raises as ``show``."""
        payload = OperatorDeleted(subject_hash=self._hash(caller.workspace_id, asked.user))
        answer = await self._change(caller, asked.user, payload, "an operator was deleted")
        return await self._retract_notes(caller, asked.user, answer)

    def _hash(self, workspace_id: str, user: str) -> str:
        return subject_hash(self._key, workspace_id, user)

    async def _change(self, caller: Caller, user: str, payload: ControlPayload, summary: str) -> OperatorChangedAnswer:
        _check(caller, user)
        recorded = await self._journal.record(caller.workspace_id, payload, summary=summary, **caller.actor_fields)
        await until_shown(self._views, recorded.seq, OPERATORS_PROJECTION)
        return OperatorChangedAnswer(slug=self.slug(caller.workspace_id, user), seq=recorded.seq)

    async def _retract_notes(self, caller: Caller, user: str, answer: OperatorChangedAnswer) -> OperatorChangedAnswer:
        """Retract what agents wrote about the person under the slug or the person's name."""
        named = [caller.workspace_id, answer.slug, user]
        operator = caller.principal.model_copy(update={"role": Role.ADMIN, "workspace_id": caller.workspace_id})
        retracted, failed = 0, 0
        for owner, key in await asyncio.to_thread(self._views.rows, _OWN_NOTES, named):
            scope, agent_id = scope_of(owner)
            if scope is not Scope.AGENT:
                continue
            asked = RetractDocumentRequest(
                tier="peers",
                key=key,
                agent_id=agent_id,
                workspace_id=caller.workspace_id,
                reason="the person opted out",
            )
            try:
                await self._writing.retract(Caller.of(operator), asked)
                retracted += 1
            except CrewJournalError:
                failed += 1
        return answer.model_copy(update={"notes_retracted": retracted, "notes_left": failed})


def _check(caller: Caller, user: str) -> None:
    if not caller.administers and not speaks_for(caller.principal.speaks_for, "user", user):
        raise NotAllowed(
            "the token may not speak for this person",
            hint="use an OWNER or ADMIN token, or one created with --speaks-for user:<person>",
            field="user",
        )


def _shown(row: OperatorProfileRow) -> ProfileShown:
    return ProfileShown(
        agent_id=row.agent_id,
        crew_id=row.crew_id,
        facts=tuple(
            FactShown(key=fact.key, value=fact.value, quote=fact.quote, entry_id=fact.entry_id)
            for fact in facts_of(row.facts)
        ),
        updated_at=format_ms(row.updated_ms),
    )

"""The use-cases of operator models: the statements of a person, forgetting them, and the person's consent.

Invariant: a person is identified by the keyed hash of the name; the name itself is not stored here. OWNER, ADMIN and
tokens that may speak for the person are allowed; an answer waits until the views have folded the change. While the
node's key differs from the journal's, no decision about a person is accepted.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ...schemas.access.events import ConsentChanged
from ...schemas.core.errors import CrewJournalError, InvalidQuery, NotAllowed, Unavailable
from ...schemas.core.grants import USER, person_of, speaks_for
from ...schemas.core.ids import SYSTEM_WORKSPACE
from ...schemas.core.payload import ControlPayload
from ...schemas.core.principal import Role
from ...schemas.core.timestamps import format_ms
from ...schemas.documents.operations import RetractDocumentRequest
from ...schemas.documents.rules import Scope, scope_of
from ...schemas.documents.tables import DOCUMENTS
from ...schemas.operators import operations as ops
from ...schemas.operators.events import OperatorDeleted, OperatorForgotten, OperatorKeyReplaced, OperatorNamed
from ...schemas.operators.rules import KEY_CHANGED, KEY_CHANGED_FIX, facts_of, key_id, slug_of, subject_hash
from ...schemas.operators.tables import OPERATORS_PROJECTION, OperatorProfileRow
from ..desk import Caller
from ..documents.learned import Opener, Profiles
from ..documents.use_cases import JournalDocuments
from ..node import Answers, Node

_OWN_NOTES: Final = f"""SELECT owner, doc_key FROM {DOCUMENTS} WHERE workspace_id = ? AND tier = 'peers'
    AND doc_key IN (?, ?) AND NOT retracted"""


class Operators:
    """The use-cases."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views = node.views
        self._documents = node.use(JournalDocuments)
        self._key = node.subject_key
        self._key_id = key_id(node.subject_key)
        self._profiles = Profiles(node.views)

    def slug(self, workspace_id: str, user: str) -> str:
        """The key of the documents about a person; blocking."""
        return slug_of(self._hash(workspace_id, user))

    def opted_out(self, workspace_id: str, user: str) -> bool:
        """Whether the person's consent was withdrawn, under any name; blocking."""
        return self._profiles.opted_out(workspace_id, self.slug(workspace_id, user))

    def opener(self, caller: Caller, user: str, agent_id: str | None, session: str | None) -> Opener:
        """The profile of the person who opened a session with an agent, for a prompt; blocking.

        The profile is empty if the caller may not read it: if it is neither OWNER nor ADMIN, does not speak for the
        person, and the person did not open the session in their own words.

        Args:
            caller: Who asks.
            user: The person.
            agent_id: The agent; None for none.
            session: The session (``trace_id``); None if it is not given.
        """
        slug = self.slug(caller.workspace_id, user)
        if self._may_read(caller, user, slug, agent_id, session):
            return self._profiles.opener(caller.workspace_id, user, slug, agent_id)
        opted_out = self._profiles.opted_out(caller.workspace_id, slug)
        return Opener(user, slug, opted_out=opted_out, verified=False)

    def _may_read(self, caller: Caller, user: str, slug: str, agent_id: str | None, session: str | None) -> bool:
        if caller.administers or speaks_for(caller.principal.speaks_for, USER, user):
            return True
        if session is None:
            return False
        opened_by = self._profiles.opener_of(caller.workspace_id, session, agent_id)
        return opened_by is not None and self.slug(caller.workspace_id, opened_by) == slug

    def figures(self) -> dict[str, str | None]:
        """For ``status``: the problem of the key with which people's names are hashed; blocking."""
        return {"error": KEY_CHANGED if self._key_changed() else None}

    def _key_changed(self) -> bool:
        return self._profiles.key_in_use() not in (None, self._key_id)

    async def show(self, caller: Caller, request: ops.OperatorRequest) -> ops.OperatorAnswer:
        """The model of a person, with the quotes that support it.

        Raises:
            NotAllowed: If the token may not speak for the person.
        """
        _check(caller, request.user)
        view_seq = self._views.view_seq(OPERATORS_PROJECTION)
        workspace_id = caller.workspace_id
        slug = slug_of(await self._person(workspace_id, request.user))
        rows = await asyncio.to_thread(self._profiles.of, workspace_id, slug)
        consent = await asyncio.to_thread(self._profiles.consent, workspace_id, slug)
        profiles = [(row.agent_id, _shown(row)) for row in rows]
        return ops.OperatorAnswer(
            slug=slug,
            consent=None if consent is None else "granted" if consent.granted else "withdrawn",
            opted_out=consent is not None and not consent.granted,
            consent_at=None if consent is None else format_ms(consent.changed_ms),
            model=next((shown for agent_id, shown in profiles if agent_id is None), None),
            cards=tuple(shown for agent_id, shown in profiles if agent_id is not None),
            view_seq=view_seq,
        )

    async def list(self, caller: Caller, _asked: ops.OperatorsRequest) -> ops.OperatorsAnswer:
        """The models of a workspace, by slug."""
        view_seq = self._views.view_seq(OPERATORS_PROJECTION)
        rows = await asyncio.to_thread(self._profiles.models, caller.workspace_id)
        return ops.OperatorsAnswer(
            operators=tuple(
                ops.OperatorShown(
                    slug=row.slug,
                    crew_id=row.crew_id,
                    keys=tuple(fact.key for fact in facts_of(row.facts)),
                    updated_at=format_ms(row.updated_ms),
                )
                for row in rows
            ),
            view_seq=view_seq,
        )

    async def forget(self, caller: Caller, request: ops.ForgetOperatorRequest) -> ops.OperatorChangedAnswer:
        """Forget one key, or all, in the model and in every card; raises as ``show``."""
        _check(caller, request.user)
        person = await self._person(caller.workspace_id, request.user)
        payload = OperatorForgotten(subject_hash=person, key=request.key)
        return await self._change(caller, person, payload, f"forget {request.key or 'all keys'} of an operator")

    async def consent(self, caller: Caller, request: ops.ConsentRequest) -> ops.OperatorChangedAnswer:
        """Record consent or its withdrawal, which removes model, cards and agents' notes; raises as ``show``."""
        _check(caller, request.user)
        person = await self._person(caller.workspace_id, request.user)
        granted = request.decision == "granted"
        payload = ConsentChanged(subject_hash=person, granted=granted, key_id=self._key_id)
        change = "opted in" if granted else "opted out"
        answer = await self._change(caller, person, payload, f"an operator {change}")
        return answer if granted else await self._retract_notes(caller, request.user, answer)

    async def name(self, caller: Caller, request: ops.NameOperatorRequest) -> ops.OperatorChangedAnswer:
        """Declare a further name of a person, or undo that; raises as ``show``, for either name.

        Raises:
            InvalidQuery: If both are the same name.
        """
        for named in (request.user, request.name):
            _check(caller, named)
        if person_of(request.user) == person_of(request.name):
            raise InvalidQuery("the name is the person's already", hint="name another one", field="name")
        person = await self._person(caller.workspace_id, request.user)
        payload = OperatorNamed(
            subject_hash=subject_hash(self._key, caller.workspace_id, request.name),
            person_hash=person,
            declared=not request.remove,
            key_id=self._key_id,
        )
        change = "lost a further name" if request.remove else "got a further name"
        answer = await self._change(caller, person, payload, f"an operator {change}")
        return answer.model_copy(update={"slug": await asyncio.to_thread(self.slug, caller.workspace_id, request.user)})

    async def delete(self, caller: Caller, request: ops.DeleteOperatorRequest) -> ops.OperatorChangedAnswer:
        """Remove model, cards, agents' notes, and consent; raises as ``show``."""
        _check(caller, request.user)
        person = await self._person(caller.workspace_id, request.user)
        answer = await self._change(caller, person, OperatorDeleted(subject_hash=person), "an operator was deleted")
        return await self._retract_notes(caller, request.user, answer)

    async def replace_key(self, caller: Caller, _asked: ops.ReplaceSubjectKeyRequest) -> ops.SubjectKeyReplacedAnswer:
        """Replace a lost key by the current one; models, consents and names of all workspaces are removed.

        Raises:
            InvalidQuery: If the present key is the journal's.
        """
        if not await asyncio.to_thread(self._key_changed):
            raise InvalidQuery("the key is the one that the journal uses", hint="nothing is to be replaced")
        payload, summary = OperatorKeyReplaced(key_id=self._key_id), "the key that names people was replaced"
        decided = await self._node.decide(caller, payload, summary, OPERATORS_PROJECTION, workspace_id=SYSTEM_WORKSPACE)
        return ops.SubjectKeyReplacedAnswer(key_id=self._key_id, seq=decided.seq, visible=decided.visible)

    def _hash(self, workspace_id: str, user: str) -> str:
        """The keyed hash of the person, also by a further name; blocking."""
        return self._profiles.person_hash(workspace_id, subject_hash(self._key, workspace_id, user))

    async def _person(self, workspace_id: str, user: str) -> str:
        """``_hash``.

        Raises:
            Unavailable: If the journal uses another key.
        """
        if await asyncio.to_thread(self._key_changed):
            raise Unavailable(KEY_CHANGED, hint=KEY_CHANGED_FIX)
        return await asyncio.to_thread(self._hash, workspace_id, user)

    async def _change(
        self, caller: Caller, person: str, payload: ControlPayload, summary: str
    ) -> ops.OperatorChangedAnswer:
        decided = await self._node.decide(caller, payload, summary, OPERATORS_PROJECTION)
        return ops.OperatorChangedAnswer(slug=slug_of(person), seq=decided.seq, visible=decided.visible)

    async def _retract_notes(
        self, caller: Caller, user: str, answer: ops.OperatorChangedAnswer
    ) -> ops.OperatorChangedAnswer:
        """Retract agents' notes about the person, under the slug or the person's name."""
        named = [caller.workspace_id, answer.slug, user]
        operator = caller.principal.model_copy(update={"role": Role.ADMIN, "workspace_id": caller.workspace_id})
        retracted, failed = 0, 0
        for owner, key in await asyncio.to_thread(self._views.rows, _OWN_NOTES, named):
            scope, agent_id = scope_of(owner)
            if scope is not Scope.AGENT:
                continue
            request = RetractDocumentRequest(
                tier="peers",
                key=key,
                agent_id=agent_id,
                workspace_id=caller.workspace_id,
                reason="the person opted out",
            )
            try:
                await self._documents.retract(Caller.of(operator), request)
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


def _shown(row: OperatorProfileRow) -> ops.ProfileShown:
    return ops.ProfileShown(
        agent_id=row.agent_id,
        crew_id=row.crew_id,
        facts=tuple(
            ops.FactShown(key=fact.key, value=fact.value, quote=fact.quote, entry_id=fact.entry_id)
            for fact in facts_of(row.facts)
        ),
        updated_at=format_ms(row.updated_ms),
    )


ANSWERS: Final[Answers] = (
    (ops.SHOW_OPERATOR, Operators.show),
    (ops.OPERATORS, Operators.list),
    (ops.FORGET_OPERATOR, Operators.forget),
    (ops.CONSENT, Operators.consent),
    (ops.NAME_OPERATOR, Operators.name),
    (ops.DELETE_OPERATOR, Operators.delete),
    (ops.REPLACE_SUBJECT_KEY, Operators.replace_key),
)

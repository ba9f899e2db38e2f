"""A request of an agent's process → the request to the service, in the agent's name.

Invariant: whatever the token of the sidecar may do, the request can do no more than the agent: it names the agent and its
crew, and writes only what the agent may write. Text that the scanners block is left out of answers, as for an agent.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl

from ....schemas.errors import InvalidQuery, NotAllowed, Unavailable
from ....schemas.rules.documents import finding_in
from ....schemas.rules.tiers import TIERS, MinRole, Scope

ROUTES: Final = {
    "/memory/search": ("POST",),
    "/memory/status": ("GET",),
    "/memory/reindex": ("POST",),
    "/memory/write": ("POST",),
}
"""Path → methods; nothing else is forwarded."""
WRITE: Final = "/memory/write"
REGISTRATION_S: Final = 5.0
"""Seconds for which the agent's registration is not read again."""


@dataclass(frozen=True, slots=True)
class Registration:
    """What the registry says of the agent; ``memory_enabled`` None if it is not registered."""

    memory_enabled: bool | None = None
    is_lead: bool = False


@dataclass(slots=True)
class ActingAgent:
    """The agent in whose name requests are sent.

    Attributes:
        agent_id: The agent.
        crew_id: Its crew; None if it has none.
        workspace_id: The workspace; None for that of the token.
    """

    agent_id: str
    crew_id: str | None
    workspace_id: str | None
    _registered: Registration = field(default_factory=Registration)
    _read_at: float | None = None

    @property
    def fields(self) -> dict[str, str]:
        """The fields that name it."""
        named = {"agent_id": self.agent_id, "crew_id": self.crew_id, "workspace_id": self.workspace_id}
        return {name: value for name, value in named.items() if value is not None}

    def is_due(self) -> bool:
        """Whether the registration is to be read again."""
        return self._read_at is None or time.monotonic() - self._read_at > REGISTRATION_S

    def take(self, registered: Registration) -> None:
        """Note the registration."""
        self._registered, self._read_at = registered, time.monotonic()

    def fields_of(self, path: str, query: str, body: bytes) -> dict[str, Any]:
        """The fields of a request, with those that name the agent.

        Raises:
            InvalidQuery: If the body is not a JSON object.
            NotAllowed: If it names another agent, crew or workspace, or the agent may not do it.
            Unavailable: If it asks for the crew's documents and the agent has no crew.
        """
        given: dict[str, Any] = dict(parse_qsl(query))
        if body.strip():
            given |= _object(body)
        for name, value in (
            ("agent_id", self.agent_id),
            ("crew_id", self.crew_id),
            ("workspace_id", self.workspace_id),
        ):
            if given.get(name) not in (None, "", value):
                raise NotAllowed(f"this sidecar is of another {name}", hint=f"leave {name} out", field=name)
            given.pop(name, None)
        if self._registered.memory_enabled is False:
            raise NotAllowed(
                f"the memory of agent {self.agent_id} is off",
                hint=f"an OWNER or ADMIN turns it on: crew-journal agent update {self.agent_id} --memory",
            )
        if given.get("scope") == Scope.CREW and self.crew_id is None:
            raise Unavailable("there is no crew", hint="the sidecar was started without --crew", field="scope")
        if path == WRITE:
            self._check_write(given)
        return given | self.fields

    def _check_write(self, given: Mapping[str, Any]) -> None:
        rule = TIERS.get(str(given.get("tier")))
        if rule is None or not rule.writable:
            return  # the service says what is wrong
        scope = given.get("scope") or next(iter(rule.writers))
        needed = rule.writers.get(Scope(scope)) if scope in list(Scope) else None
        if needed is MinRole.OPERATOR or (needed is MinRole.LEAD and not self._registered.is_lead):
            who = "operators" if needed is MinRole.OPERATOR else "the lead of the crew"
            raise NotAllowed(
                f"{given['tier']} of the {scope} is written by {who}", hint="write to AGENT or daily", field="tier"
            )


def answer_for_agent(body: bytes) -> bytes:
    """An answer without what an operator's token reads and an agent does not: blocked text and labels of it."""
    try:
        answer = json.loads(body)
    except ValueError:
        return body
    if not isinstance(answer, dict):
        return body
    answer.pop("quarantined", None)
    entries = answer.get("current_entries")
    if isinstance(entries, str) and finding_in(entries) is not None:
        del answer["current_entries"]
    return json.dumps(answer, ensure_ascii=False).encode()


def _object(body: bytes) -> dict[str, Any]:
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise InvalidQuery("the body is not a JSON object", hint='send one, such as {"query": "deployment"}')
    return given

"""The HTTP server of a sidecar: loopback only, four routes, no token.

Invariants: it listens on loopback alone; a request whose Host or Origin is not of this machine is refused, so that a page in
a browser cannot reach it, neither by its own origin nor by DNS rebinding; the token leaves for the service only.
"""

from __future__ import annotations

import ipaddress
import json
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import httpx

from ...schemas.core.errors import CrewJournalError, EntryTooLarge, InvalidQuery, NotAllowed, NotFound, Unavailable
from ...schemas.documents.rules import TIERS, MinRole, Scope
from ...schemas.text.injection import finding_in
from .connection import Target

# A request of an agent's process → the request to the service, in the agent's name.


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
    """The registration of the agent; ``memory_enabled`` is None if the agent is not registered."""

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
        """Whether the registration must be read again."""
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
            return  # the service reports the error
        scope = given.get("scope") or next(iter(rule.writers))
        needed = rule.writers.get(Scope(scope)) if scope in list(Scope) else None
        if needed is MinRole.OPERATOR or (needed is MinRole.LEAD and not self._registered.is_lead):
            who = "operators" if needed is MinRole.OPERATOR else "the lead of the crew"
            raise NotAllowed(
                f"{given['tier']} of the {scope} is written by {who}", hint="write to AGENT or daily", field="tier"
            )


def answer_for_agent(body: bytes) -> bytes:
    """An answer without data that only operators may read: blocked text and its labels."""
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


MAX_BODY_BYTES: Final = 1_048_576
TIMEOUT_S: Final = 60.0
"""Seconds for an answer of the service, which waits up to 30 s for the broker, and for a request's body."""
_READ_OF_TOO_LARGE: Final = 16 * MAX_BODY_BYTES
"""Bytes of a body that is too large that are read: closing a connection on unread bytes can lose the answer."""
_LENGTH_REQUIRED: Final = 411
_NOT_ALLOWED: Final = 405
_NOT_FOUND: Final = 404


@dataclass(frozen=True, slots=True)
class Listen:
    """An address to listen on."""

    host: str
    port: int


def listen_of(text: str) -> Listen:
    """``127.0.0.1:9120``, ``localhost:9120`` or ``[::1]:9120``.

    Raises:
        InvalidQuery: If it is not an address, or not loopback.
    """
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if port is None:
        raise InvalidQuery(f"--listen {text!r} is not an address", hint="write it like 127.0.0.1:9120", field="listen")
    if not is_loopback(host):
        raise InvalidQuery(
            f"--listen {text!r} is not loopback",
            hint="a sidecar asks for no token: use 127.0.0.1, ::1 or localhost",
            field="listen",
        )
    return Listen("127.0.0.1" if host == "localhost" else host, port)


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Sidecar(ThreadingHTTPServer):
    """A running sidecar.

    Args:
        listen: The listening address.
        identity: The agent in whose name requests are sent.
        find: Returns the current service; None if no service runs.
    """

    daemon_threads = True

    def __init__(self, listen: Listen, identity: ActingAgent, find: Callable[[], Target | None]) -> None:
        self.address_family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
        self.identity = identity
        self._find = find
        self._http = httpx.Client(timeout=TIMEOUT_S, trust_env=False)
        super().__init__((listen.host, listen.port), _Handler)

    @property
    def url(self) -> str:
        """Its address."""
        host, port = self.server_address[:2]
        return f"http://[{host!s}]:{port}" if ":" in str(host) else f"http://{host!s}:{port}"

    def server_close(self) -> None:
        """Close the socket and the connections to the service."""
        super().server_close()
        self._http.close()

    def forward(self, method: str, path: str, query: str, body: bytes) -> tuple[int, bytes]:
        """Ask the service in the agent's name; status and body of its answer.

        Raises:
            CrewJournalError: If the request is refused here, or the service does not answer.
        """
        there = self._find()
        if there is None:
            raise Unavailable("the service does not run", hint="start `crew-journal up`")
        if self.identity.is_due():
            self.identity.take(self._registration(there))
        fields = self.identity.fields_of(path, query, body)
        if method == "GET":
            answer = self._ask(there, method, path, params=fields)
        else:
            answer = self._ask(there, method, path, json=fields)
        return answer.status_code, answer_for_agent(answer.content)

    def _registration(self, there: Target) -> Registration:
        named = {"workspace_id": self.identity.workspace_id} if self.identity.workspace_id else {}
        answer = self._ask(there, "GET", f"/v1/agents/{self.identity.agent_id}", params=named)
        if answer.status_code == _NOT_FOUND:
            return Registration()
        if answer.is_error:
            raise Unavailable(f"the service answered {answer.status_code}", hint="check the token and the agent")
        body = answer.json()
        return Registration(body["memory_enabled"], body["role"] == "lead")

    def _ask(self, there: Target, method: str, path: str, **more: Any) -> httpx.Response:
        try:
            return self._http.request(
                method, there.url + path, headers={"Authorization": f"Bearer {there.token}"}, **more
            )
        except httpx.TransportError as error:
            raise Unavailable(
                f"the service does not answer: {type(error).__name__}", hint="check that `crew-journal up` runs"
            ) from None


class _Handler(BaseHTTPRequestHandler):
    server: Sidecar
    timeout = TIMEOUT_S
    server_version = "crew-journal"
    sys_version = ""

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name in the base class
        """Log nothing: the service does."""

    def _serve(self) -> None:
        try:
            status, body, kind = *self._answer(), "application/json"
        except CrewJournalError as error:
            problem = {
                "title": error.title,
                "status": error.status,
                "detail": error.message,
                "hint": error.hint,
                "field": error.field,
            }
            status, kind = error.status, "application/problem+json"
            body = json.dumps({name: value for name, value in problem.items() if value not in (None, "")}).encode()
        self.close_connection = True  # a body that was refused has not been read
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _answer(self) -> tuple[int, bytes]:
        self._check_sender()
        parts = urlsplit(self.path)
        methods = ROUTES.get(parts.path)
        if methods is None:
            raise NotFound(f"a sidecar has no {parts.path[:64]}", hint=f"it has {', '.join(ROUTES)}")
        if self.command not in methods:
            raise _with_status(InvalidQuery(f"{parts.path} takes {methods[0]}"), _NOT_ALLOWED)
        return self.server.forward(self.command, parts.path, parts.query, self._body())

    def _check_sender(self) -> None:
        hosts, origins = self.headers.get_all("Host", []), self.headers.get_all("Origin", [])
        if len(hosts) != 1 or not is_loopback(_host_of(f"//{hosts[0]}")):
            raise NotAllowed("the Host header does not name this machine", hint="use 127.0.0.1 or localhost")
        if any(not is_loopback(_host_of(origin)) for origin in origins):
            raise NotAllowed("the Origin header names another site", hint="ask from a process of this machine")

    def _body(self) -> bytes:
        if self.command == "GET":
            return b""
        if "Transfer-Encoding" in self.headers:
            raise _with_status(InvalidQuery("the length of the body is missing"), _LENGTH_REQUIRED)
        length = self.headers.get("Content-Length", "0")
        if not (length.isascii() and length.isdigit()):
            raise InvalidQuery("Content-Length is not a number")
        if int(length) > MAX_BODY_BYTES:
            left = min(int(length), _READ_OF_TOO_LARGE)
            while left > 0 and (piece := self.rfile.read(min(left, MAX_BODY_BYTES))):
                left -= len(piece)
            raise EntryTooLarge(f"the body has {length} of {MAX_BODY_BYTES} bytes", hint="send less at once")
        return self.rfile.read(int(length))


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _with_status(error: CrewJournalError, status: int) -> CrewJournalError:
    error.status = status  # type: ignore[misc]  # of this one error
    return error

"""The content of each page: a function from a request to the values of its template.

Invariant: a page runs the same operations as HTTP with the same principal, so that it shows only data that the token
may read.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from ...schemas.access.operations import WORKSPACES
from ...schemas.core.entry import Priority, Severity
from ...schemas.core.errors import CrewJournalError, EntryTooLarge, NotAllowed, NotAuthenticated, OverBudget
from ...schemas.core.operation import Operation
from ...schemas.core.principal import Principal
from ...schemas.health.events import HealthRecorded
from ...schemas.health.operations import HEALTH
from ...schemas.models.operations import EMBEDDING_MODELS
from ...schemas.operate.operations import DEAD_LETTERS
from ...schemas.recall.operations import RECALL
from ...schemas.relations.operations import GRAPH
from ..access.tokens import TokenRegistry
from ..budgets import SPENDER
from ..entries.filters import Cursor, parse_filters
from ..http.route import AppServices
from ..printable import moment_of

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


# Sessions of visitors, which are valid only for the pages, and codes that prove that a form comes from one of our
# pages.
#
# A browser sends cookies by host name, not by port, so every other server on 127.0.0.1 may receive them. Invariants: a
# cookie contains a random id, never a token, and only the routes of the pages read it. A session also has a *place*:
# 128 random bits in the path of its pages and in the path and name of its cookie. A browser sends the cookie only
# below that path, which other servers do not know, and an id is useless without its place. Scripts cannot read the
# cookie, and browsers do not send it with requests from other sites. A form that changes something contains a code of
# its session.
#
# Sessions are kept in memory: they end with the process, when the person signs out, with their token, and after
# ``LIFE_S``.


PREFIX: Final = "/ui/s/"
"""Prefix of a session's place in the paths of its pages."""
FORMER_COOKIE: Final = "crew_journal"
"""Name of a former cookie that contained the token; browsers that still have it are asked to delete it."""
LIFE_S: Final = 12 * 3_600
"""Lifetime of a session in seconds: a working day."""
SESSIONS_PER_TOKEN: Final = 16
"""Maximum sessions of a token; a further session ends the oldest."""
FAILURES_A_MINUTE: Final = 30
"""Maximum sign-ins per minute with a wrong token that get the form again; further attempts get a short refusal. A valid
token always works.
"""
FORM_BYTES: Final = 16_384
"""Maximum bytes of a form; the longest field is a reason of 1,000 characters."""
_PLACE_BYTES: Final = 16
_ID_BYTES: Final = 32
_MINUTE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Session:
    """A session of pages.

    Attributes:
        place: The secret part of its paths.
        token_id: The token with which it began.
        digest: SHA-256 of its id.
        code: The code in its forms.
        ends: When it ends, seconds of the clock.
    """

    place: str
    token_id: str
    digest: bytes
    code: str
    ends: float

    @property
    def cookie(self) -> str:
        """The name of its cookie, which other servers do not know and therefore cannot overwrite."""
        return cookie_of(self.place)

    def within(self, address: str) -> str:
        """The address of a page in this session; another address is returned as it is."""
        return f"{PREFIX}{self.place}{rest}" if (rest := rest_of(address)) is not None else address


class Sessions:
    """The sessions of a node.

    Args:
        clock: Monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_place: dict[str, Session] = {}
        self._failures: deque[float] = deque(maxlen=FAILURES_A_MINUTE)

    def __len__(self) -> int:
        return len(self._by_place)

    def begin(self, principal: Principal) -> tuple[Session, str]:
        """Start a session; returns it and its id, which is not stored."""
        now = self._clock()
        self._by_place = {place: session for place, session in self._by_place.items() if session.ends > now}
        mine = [place for place, session in self._by_place.items() if session.token_id == principal.token_id]
        for place in mine[: max(0, len(mine) + 1 - SESSIONS_PER_TOKEN)]:
            del self._by_place[place]
        session_id, place = secrets.token_urlsafe(_ID_BYTES), secrets.token_urlsafe(_PLACE_BYTES)
        code = secrets.token_hex(_ID_BYTES)
        session = Session(place, principal.token_id, _digest(session_id), code, now + LIFE_S)
        self._by_place[place] = session
        return session, session_id

    def find(self, place: str, session_id: str, tokens: TokenRegistry) -> tuple[Principal, Session]:
        """The session at a place, if the id matches and its token is still valid.

        Raises:
            NotAuthenticated: If there is none.
            ViewsBehind: If the tokens have not been folded yet.
        """
        session = self._by_place.get(place)
        if session is None or not hmac.compare_digest(_digest(session_id), session.digest):
            raise NotAuthenticated("not signed in", hint="sign in with a token")
        try:
            if session.ends <= self._clock():
                raise NotAuthenticated("the session has ended", hint="sign in again")
            return tokens.bearer(session.token_id), session
        except NotAuthenticated:
            self.end(session)
            raise

    def end(self, session: Session) -> None:
        """End a session."""
        self._by_place.pop(session.place, None)

    def failed(self) -> None:
        """Count a sign-in with a wrong token.

        Raises:
            OverBudget: If there were too many within a minute.
        """
        now = self._clock()
        full = len(self._failures) == FAILURES_A_MINUTE
        wait_s = self._failures[0] + _MINUTE_S - now if full else 0.0
        if wait_s > 0:
            raise OverBudget(
                f"more than {FAILURES_A_MINUTE} sign-ins with a wrong token within a minute",
                hint="check the token; a valid one is accepted at once",
                budget="sign-ins",
                retry_after_s=wait_s,
            )
        self._failures.append(now)


def signed_in(request: Request, sessions: Sessions, services: AppServices) -> tuple[Principal, Session]:
    """The principal and the session of a request to a page.

    Raises:
        NotAuthenticated: If path and cookie do not belong to a session with a valid token.
        ViewsBehind: If the tokens have not been folded yet.
    """
    place = request.path_params["place"]
    session_and_principal = sessions.find(place, request.cookies.get(cookie_of(place), ""), services.tokens)
    SPENDER.set(services.budgets.spender(session_and_principal[0]))
    return session_and_principal


def cookie_of(place: str) -> str:
    """The name of the cookie of a session."""
    return f"crew_journal_{hashlib.sha256(place.encode()).hexdigest()[:16]}"


def rest_of(address: str) -> str | None:
    """The part of a page's path after the place (``/ui/journal?q=x`` → ``/journal?q=x``); None if it is not a page."""
    if address == "/" or address.startswith("/?"):
        return address
    is_page = address.startswith("/ui/") and not address.startswith((PREFIX, "/ui/login", "/ui/static"))
    return address.removeprefix("/ui") if is_page else None


def without_place(address: str) -> str:
    """The address of a page without its session, for sharing: ``/ui/s/PLACE/journal`` → ``/ui/journal``."""
    if not address.startswith(PREFIX):
        return address
    rest = "/" + address.removeprefix(PREFIX).partition("/")[2]
    return rest if rest == "/" or rest.startswith("/?") else f"/ui{rest}"


def keep(response: Response, session: Session, session_id: str, *, secure: bool) -> None:
    """Set the cookie; over HTTPS with the attribute ``Secure``."""
    response.set_cookie(
        session.cookie, session_id, max_age=LIFE_S, httponly=True, samesite="strict", secure=secure, path=_path(session)
    )


def drop(response: Response, session: Session) -> None:
    """Let the browser delete the cookie."""
    response.delete_cookie(session.cookie, path=_path(session), httponly=True, samesite="strict")


def _path(session: Session) -> str:
    return f"{PREFIX}{session.place}/"


def _digest(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode()).digest()


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form that one of our pages sent.

    Raises:
        NotAllowed: If the browser says that it comes from another site.
        EntryTooLarge: If it has more than ``FORM_BYTES`` bytes.
    """
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise NotAllowed("the form comes from another site", hint="send it from a page of this service")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > FORM_BYTES:
            raise EntryTooLarge(f"the form has more than {FORM_BYTES} bytes", hint="shorten its text")
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=64))


def check_code(form: dict[str, str], code: str) -> None:
    """Check and remove the form's code.

    Raises:
        NotAllowed: If the code is not the session's.
    """
    if not hmac.compare_digest(form.pop("code", "").encode(), code.encode()):
        raise NotAllowed("the form is not from this sign-in", hint="load the page again and repeat it")

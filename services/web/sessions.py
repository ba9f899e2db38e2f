"""Sessions of visitors of the pages, and codes that prove that a form comes from one of them.

A browser sends cookies by host name, not by port, so every other server on 127.0.0.1 may receive them. Invariants: a
cookie contains a random id, never a token, and only the routes of the pages read it. A session also has a *place*: 128
random bits in the path of its pages and in the path and name of its cookie. A browser sends the cookie only below that
path, which other servers do not know, and an id is useless without its place. Scripts cannot read the cookie, and
browsers do not send it with requests from other sites. A form that changes something contains a code of its session.

Sessions are kept in memory: they end with the process, when the person signs out, with their token, and after
``LIFE_S``.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from ...schemas.core.errors import EntryTooLarge, NotAllowed, NotAuthenticated, OverBudget
from ...schemas.core.principal import Principal
from ..access.tokens import TokenRegistry
from ..budgets import SPENDER
from ..http.route import AppServices

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

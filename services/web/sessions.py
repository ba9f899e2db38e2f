"""Sessions of visitors of the pages, and codes that prove that a form comes from one of them.

A browser sends cookies by host name, not by port, so every other server on 127.0.0.1 may receive them. Invariants: a
cookie contains a random id, never a token, and only the routes of the pages read it. A session also has a *place*: 128
random bits in the path of its pages and in the path and name of its cookie. A browser sends the cookie only below that
path, which other servers do not know, and an id is useless without its place. Scripts cannot read the cookie, and
browsers do not send it with requests from other sites. A form that changes something contains a code of its session.

Sessions are kept in memory (``services/access/accounts``): they end with the process, when the person signs out or another
ends them, with their token or account, with the password, and after ``LIFE_S``.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from ...schemas.core.errors import EntryTooLarge, NotAllowed
from ...schemas.core.principal import Principal
from ..access.accounts import LIFE_S, Session
from ..budgets import SPENDER
from ..http.route import AppServices

PREFIX: Final = "/ui/s/"
"""Prefix of a session's place in the paths of its pages."""
FORMER_COOKIE: Final = "crew_journal"
"""Name of a former cookie that contained the token; browsers that still have it are asked to delete it."""
FORM_BYTES: Final = 16_384
"""Maximum bytes of a form; the longest field is a reason of 1,000 characters."""


def within(session: Session, address: str) -> str:
    """The address of a page in a session; another address is returned as it is."""
    return f"{PREFIX}{session.place}{rest}" if (rest := rest_of(address)) is not None else address


async def signed_in(request: Request, services: AppServices) -> tuple[Principal, Session]:
    """The principal and the session of a request to a page.

    Raises:
        NotAuthenticated: If path and cookie do not belong to a session with a valid token or account.
        ViewsBehind: If the tokens have not been folded yet.
    """
    place, accounts = request.path_params["place"], services.accounts
    cookie = request.cookies.get(cookie_of(place), "")
    principal, session = await accounts.sessions.find(place, cookie, accounts.bearer)
    SPENDER.set(services.budgets.spender(principal))
    return principal, session


def cookie_of(place: str) -> str:
    """The name of the cookie of a session."""
    return f"crew_journal_{hashlib.sha256(place.encode()).hexdigest()[:16]}"


def rest_of(address: str) -> str | None:
    """The part of a page's path after the place (``/ui/journal?q=x`` → ``/journal?q=x``); None if it is not a page."""
    if address == "/" or address.startswith("/?"):
        return address
    is_page = address.startswith("/ui/") and not address.startswith((PREFIX, "/ui/login", "/ui/join", "/ui/static"))
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
        cookie_of(session.place),
        session_id,
        max_age=LIFE_S,
        httponly=True,
        samesite="strict",
        secure=secure,
        path=_path(session),
    )


def drop(response: Response, session: Session) -> None:
    """Let the browser delete the cookie."""
    response.delete_cookie(cookie_of(session.place), path=_path(session), httponly=True, samesite="strict")


def _path(session: Session) -> str:
    return f"{PREFIX}{session.place}/"


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

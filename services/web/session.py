"""The visitor of a page: a token in a cookie, and proof that a form was sent from one of our pages.

Invariants: the cookie is read by pages alone, so no foreign page can make the browser call ``/v1``; scripts cannot read it,
and it is not sent along from another site; a form that changes something carries a code which only a page of the same
token can hold.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from ...schemas.errors import EntryTooLarge, NotAllowed, NotAuthenticated
from ...schemas.principal import Principal
from ..http.ports import AppServices

COOKIE: Final = "crew_journal"
COOKIE_DAYS: Final = 30
FORM_BYTES: Final = 16_384
"""Largest form; the longest field is a reason of 1,000 characters."""


def signed_in(request: Request, services: AppServices) -> tuple[Principal, str]:
    """The principal of the token in the cookie, and its form code.

    Raises:
        NotAuthenticated: If the cookie is absent or the token is no longer valid.
        ViewsBehind: If the tokens have not been folded yet.
    """
    token = request.cookies.get(COOKIE)
    if not token:
        raise NotAuthenticated("not signed in", hint="sign in with a token")
    return services.tokens.authenticate(token), form_code(token)


def form_code(token: str) -> str:
    """The code in every form of a page; it reveals nothing about the token."""
    return hmac.new(token.encode(), b"form", hashlib.sha256).hexdigest()


def keep(response: Response, token: str, *, secure: bool) -> None:
    """Set the cookie; over HTTPS it never travels without."""
    response.set_cookie(
        COOKIE, token, max_age=COOKIE_DAYS * 86_400, httponly=True, samesite="strict", secure=secure, path="/"
    )


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
    """Take the form's code out of it.

    Raises:
        NotAllowed: If it is not that of the token.
    """
    if not hmac.compare_digest(form.pop("code", ""), code):
        raise NotAllowed("the form is not from this sign-in", hint="load the page again and repeat it")

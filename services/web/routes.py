"""The routes of the pages: one loop over ``PAGES``, signing in and out, files, and the forms.

Invariants: every page except the sign-in page needs a session, and the session's place is part of the page's path.
Without it, the address leads to the sign-in page and then to the page, so that links can be shared. All text is escaped
by Jinja or ``safe``; a form can request only the operations in ``FORMS``.
"""

from __future__ import annotations

from functools import cache, partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import orjson
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ...schemas.core.errors import CrewJournalError, NotAllowed, NotAuthenticated, NotFound
from ...schemas.core.operation import Operation
from ...schemas.health.operations import MEASURE_HEALTH
from ...schemas.models.operations import ACTIVATE_MODEL
from ...schemas.operate.operations import DISCARD_DEAD_LETTER, RETRY_DEAD_LETTER
from ...schemas.standing.operations import RESTORE, RETRACT, SET_PRIORITY
from ..entries.filters import parse_filters
from ..http.bodies import trace_id_of
from ..http.operations import readers
from ..http.route import services_of
from ..printable import safe
from .pages import (
    FORMER_COOKIE,
    PAGES,
    PREFIX,
    Page,
    Session,
    Sessions,
    Visit,
    check_code,
    drop,
    form_of,
    keep,
    rest_of,
    signed_in,
    without_place,
    workspaces,
)

if TYPE_CHECKING:
    from jinja2 import Environment

HERE: Final = Path(__file__).parent
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""Content policy: only our own files are loaded and executed."""
HEADERS: Final = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin"}
"""Not ``no-referrer`` as for answers, with which a browser sends ``Origin: null`` with a form."""
FORMS: Final[dict[str, Operation[Any, Any]]] = {
    operation.name: operation
    for operation in (
        RETRACT,
        RESTORE,
        SET_PRIORITY,
        RETRY_DEAD_LETTER,
        DISCARD_DEAD_LETTER,
        MEASURE_HEALTH,
        ACTIVATE_MODEL,
    )
}


@cache
def templates() -> Environment:
    """The templates of all pages; they escape all values, control characters included."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # imported late, because a start does not need it

    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.finalize = lambda value: safe(value, keep="\n") if type(value) is str else value
    environment.filters["json"] = _json
    environment.filters["when"] = lambda ts: str(ts)[:16].replace("T", " ")
    return environment


def _json(value: object) -> str:
    """JSON with line breaks; parts of an entry may be text that is JSON already."""
    return orjson.dumps(orjson.loads(orjson.dumps(value)), option=orjson.OPT_INDENT_2).decode()


def web_routes() -> list[Route | Mount]:
    """Every page, the forms, and the files; the sessions are theirs."""
    sessions = Sessions()
    within = f"{PREFIX}{{place}}"
    return [
        *(Route(page.path, _to_sign_in, methods=["GET"]) for page in PAGES),
        *(Route(f"{within}{rest_of(page.path)}", _serve(page, sessions), methods=["GET"]) for page in PAGES),
        Route("/ui/login", sign_in_page, methods=["GET"]),
        Route("/ui/login", partial(sign_in, sessions), methods=["POST"]),
        Route(f"{within}/logout", partial(sign_out, sessions), methods=["POST"]),
        Route(f"{within}/do/{{operation}}", partial(do, sessions), methods=["POST"]),
        Mount("/ui/static", StaticFiles(directory=HERE / "static")),
    ]


def _serve(page: Page, sessions: Sessions) -> Any:
    async def serve(request: Request) -> Response:
        services = services_of(request)
        try:
            principal, session = signed_in(request, sessions, services)
        except NotAuthenticated:
            return await _to_sign_in(request)
        visit = Visit(request, services, principal, request.query_params.get("workspace_id", "").strip() or None)
        status, error = HTTPStatus.OK.value, None
        template, values = page.template, {} if page.form is None else page.form(visit)
        try:
            if page.administrators and not principal.role.administers:
                raise NotAllowed(
                    f"a token of role {principal.role.value} may not see this page", hint="sign in as ADMIN"
                )
            values |= await page.build(visit)
        except CrewJournalError as caught:
            status, error = caught.status, caught
            template = "base.html" if page.form is None else template
        shown = {
            "page": page,
            "pages": [
                other for other in PAGES if other.key and (principal.role.administers or not other.administrators)
            ],
            "principal": principal,
            "session": session,
            "code": session.code,
            "workspace": visit.workspace,
            "workspaces": await workspaces(visit),
            "here": _address(request),
            "asked": request.query_params,
            "at": session.within,
            "link": _linker(session, visit.workspace),
            "error": error,
            "trace_id": trace_id_of(request),
        }
        return _page(template, status, **shown, **values)

    return serve


def _linker(session: Session, workspace: str | None) -> Any:
    def link(path: str, **query: object) -> str:
        path = session.within(path)
        named = {"workspace_id": workspace, **query}
        text = urlencode({name: str(value) for name, value in named.items() if value not in (None, "")})
        return f"{path}?{text}" if text else path

    return link


def _address(request: Request) -> str:
    return f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path


def _page(template: str, status: int, /, **values: Any) -> Response:
    text = templates().get_template(template).render(values)
    return HTMLResponse(text, status, HEADERS)


async def _to_sign_in(request: Request) -> Response:
    params = {"next": without_place(_address(request))}
    if "place" in request.path_params:
        params["ended"] = "1"  # otherwise the sign-in page would lead back here
    return RedirectResponse(f"/ui/login?{urlencode(params)}", HTTPStatus.SEE_OTHER)


async def sign_in_page(request: Request) -> Response:
    """The form for the token."""
    following = _local(request.query_params.get("next", "/"))
    response = _sign_in_form(request, HTTPStatus.OK, following, ended="ended" in request.query_params)
    if FORMER_COOKIE in request.cookies:
        response.delete_cookie(FORMER_COOKIE, path="/", httponly=True, samesite="strict")
    return response


def _sign_in_form(
    request: Request, status: int, following: str, *, ended: bool = True, error: CrewJournalError | None = None
) -> Response:
    rest = None if ended else rest_of(following)
    return _page("login.html", status, next=following, rest=rest, error=error, trace_id=trace_id_of(request))


async def sign_in(sessions: Sessions, request: Request) -> Response:
    """Begin a session, if the token is valid."""
    following = "/"
    try:
        form = await form_of(request)
        following = _local(form.get("next", "/"))
        principal = services_of(request).tokens.authenticate(form.get("token", "").strip())
    except CrewJournalError as error:
        if isinstance(error, NotAuthenticated):
            sessions.failed()
        return _sign_in_form(request, error.status, following, error=error)
    session, session_id = sessions.begin(principal)
    response = RedirectResponse(session.within(following), HTTPStatus.SEE_OTHER)
    keep(response, session, session_id, secure=request.url.scheme == "https")
    return response


async def sign_out(sessions: Sessions, request: Request) -> Response:
    """End the session."""
    response = RedirectResponse("/ui/login?ended=1", HTTPStatus.SEE_OTHER)
    try:
        form = await form_of(request)
        _, session = signed_in(request, sessions, services_of(request))
        check_code(form, session.code)
    except CrewJournalError:
        return response
    sessions.end(session)
    drop(response, session)
    return response


async def do(sessions: Sessions, request: Request) -> Response:
    """Run the operation of a form, then show its page."""
    services = services_of(request)
    try:
        principal, session = signed_in(request, sessions, services)
        form = await form_of(request)
        check_code(form, session.code)
        back = session.within(_local(form.pop("back", "/")))
        operation = FORMS.get(request.path_params["operation"])
        if operation is None:
            raise NotFound("no form asks for this", hint=f"there are {', '.join(sorted(FORMS))}")
        kinds = readers(operation.request)
        raw = {name: kinds[name](value) if name in kinds else value for name, value in form.items() if value.strip()}
        answer = await services.desk.run(operation, principal, raw)
        if seq := getattr(answer, "seq", None):
            await services.queries.count(principal, parse_filters([]), min_seq=seq)  # so that the page shows the change
    except CrewJournalError as error:
        return _page("refused.html", error.status, error=error, trace_id=trace_id_of(request))
    return RedirectResponse(back, HTTPStatus.SEE_OTHER)


def _local(address: str) -> str:
    """The address if it is a path of this service, else the first page: a link must not lead to another site."""
    ours = address.startswith("/") and not address.startswith("//") and "\\" not in address and address.isprintable()
    return address if ours else "/"

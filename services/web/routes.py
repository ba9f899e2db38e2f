"""The routes of the pages: one loop over ``PAGES``, signing in and out, files, and the forms.

Invariants: every page except the sign-in page needs a session, and the session's place is part of the page's path.
Without it, the address leads to the sign-in page and then to the page, so that links can be shared. All text is escaped
by Jinja or ``safe``; a form can request only the operations in ``FORMS``.
"""

from __future__ import annotations

import csv
import io
from functools import cache, partial
from http import HTTPStatus
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_origin
from urllib.parse import urlencode

import orjson
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ...schemas.access.operations import END_SESSION, INVITE_PERSON, REMOVE_ACCOUNT
from ...schemas.core.errors import CrewJournalError, InvalidQuery, NotAllowed, NotAuthenticated, NotFound, OverBudget
from ...schemas.core.operation import Access, Operation
from ...schemas.core.principal import Principal
from ...schemas.core.timestamps import format_ms
from ...schemas.documents.operations import DOCUMENT_RESTORE, DOCUMENT_RETRACT
from ...schemas.erasure.operations import EXPORT_PERSON, FORGET
from ...schemas.facts.operations import KG_INVALIDATE
from ...schemas.health.operations import MEASURE_HEALTH
from ...schemas.learning.operations import ADD_LESSON, APPROVE_PROPOSAL, REJECT_PROPOSAL, UNDO_PROPOSAL
from ...schemas.models.operations import ACTIVATE_MODEL
from ...schemas.operate.operations import DISCARD_DEAD_LETTER, RETRY_DEAD_LETTER
from ...schemas.operators.operations import CONSENT, DELETE_OPERATOR, FORGET_OPERATOR
from ...schemas.relations.operations import RELATE, UNRELATE
from ...schemas.standing.operations import CORRECT, RESTORE, RETRACT, SET_PRIORITY
from ..access.accounts import JOIN_PATH, LEAST_PASSWORD, Session
from ..desk import check_access
from ..entries.filters import parse_filters
from ..http.bodies import trace_id_of
from ..http.operations import readers
from ..http.route import services_of
from ..printable import safe
from .pages import PAGES, SIGN_INS, Page, Visit, workspaces
from .sessions import (
    FORMER_COOKIE,
    PREFIX,
    check_code,
    drop,
    form_of,
    keep,
    rest_of,
    signed_in,
    within,
    without_place,
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
        CORRECT,
        SET_PRIORITY,
        RELATE,
        UNRELATE,
        APPROVE_PROPOSAL,
        REJECT_PROPOSAL,
        UNDO_PROPOSAL,
        ADD_LESSON,
        DOCUMENT_RESTORE,
        DOCUMENT_RETRACT,
        KG_INVALIDATE,
        CONSENT,
        FORGET_OPERATOR,
        DELETE_OPERATOR,
        EXPORT_PERSON,
        FORGET,
        RETRY_DEAD_LETTER,
        DISCARD_DEAD_LETTER,
        INVITE_PERSON,
        REMOVE_ACCOUNT,
        END_SESSION,
        MEASURE_HEALTH,
        ACTIVATE_MODEL,
    )
}
"""Every change that a page can ask for."""
LONG: Final = ("rebuild", "verify")
"""Long operations of the node's owner; the page *System* shows how far they are."""
DOWNLOADED: Final = frozenset({EXPORT_PERSON.name})
"""Operations whose answer is a file for the visitor."""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of a cell that spreadsheet programs execute."""


@cache
def templates() -> Environment:
    """The templates of all pages; they escape all values, control characters included."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # imported late, because a start does not need it

    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.finalize = lambda value: safe(value, keep="\n") if type(value) is str else value
    environment.filters["json"] = _json
    environment.filters["parsed"] = lambda value: orjson.loads(orjson.dumps(value))
    environment.filters["moment"] = lambda unix_ms: format_ms(unix_ms)[:16].replace("T", " ")
    environment.filters["when"] = lambda ts: str(ts)[:16].replace("T", " ")
    return environment


def _json(value: object) -> str:
    """JSON with line breaks; parts of an entry may be text that is JSON already."""
    return orjson.dumps(orjson.loads(orjson.dumps(value)), option=orjson.OPT_INDENT_2).decode()


def web_routes() -> list[Route | Mount]:
    """Every page, the forms, and the files."""
    inside = f"{PREFIX}{{place}}"
    return [
        *(Route(page.path, _to_sign_in, methods=["GET"]) for page in PAGES),
        *(Route(f"{inside}{rest_of(page.path)}", _serve(page), methods=["GET"]) for page in PAGES),
        Route("/ui/login", sign_in_page, methods=["GET"]),
        Route("/ui/login", sign_in, methods=["POST"]),
        Route(f"{JOIN_PATH}{{secret}}", join_page, methods=["GET"]),
        Route(f"{JOIN_PATH}{{secret}}", join, methods=["POST"]),
        Route(f"{inside}/logout", sign_out, methods=["POST"]),
        Route(f"{inside}/password", change_password, methods=["POST"]),
        Route(f"{inside}/do/{{operation}}", do, methods=["POST"]),
        Mount("/ui/static", StaticFiles(directory=HERE / "static")),
    ]


def _serve(page: Page) -> Any:
    async def serve(request: Request) -> Response:
        services = services_of(request)
        try:
            principal, session = await signed_in(request, services)
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
            if page.rows and (form := visit.asked("format")) is not None:
                return _list_of(page, values[page.rows], form)
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
            "as_of": None if page.timeless else visit.asked("as_of"),
            "view_seq": services.status.view_seq,
            "at": partial(within, session),
            "link": _linker(session, visit.workspace),
            "error": error,
            "trace_id": trace_id_of(request),
        }
        return _page(template, status, **shown, **values)

    return serve


def _list_of(page: Page, rows: Any, form: str) -> Response:
    """The list of a page as CSV or JSON.

    Raises:
        NotFound: If it is asked for in another form.
    """
    shown = [orjson.loads(orjson.dumps(row, default=BaseModel.model_dump)) for row in rows]
    name = rest_of(page.path.partition("{")[0].rstrip("/"))
    if form == "json":
        return Response(orjson.dumps(shown), media_type="application/json", headers=HEADERS)
    if form != "csv":
        raise NotFound(f"there is no list in the form {form}", hint="format: csv or json")
    text = io.StringIO()
    columns = list(dict.fromkeys(column for row in shown for column in row))
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows([cell_text(row.get(column)) for column in columns] for row in shown)
    attached = {"Content-Disposition": f'attachment; filename="{(name or "/list")[1:]}.csv"'}
    return Response(text.getvalue(), media_type="text/csv; charset=utf-8", headers=HEADERS | attached)


def cell_text(value: Any) -> str:
    """A value as text; a text that a spreadsheet would execute begins with an apostrophe."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return f"'{text}" if isinstance(value, str) and text.startswith(_FORMULA) else text


def _linker(session: Session, workspace: str | None) -> Any:
    def link(path: str, **query: object) -> str:
        path = within(session, path)
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


async def sign_in(request: Request) -> Response:
    """Begin a session, if the token is valid or the name has this password."""
    following, services = "/", services_of(request)
    accounts, password_seq = services.accounts, None
    try:
        form = await form_of(request)
        following = _local(form.get("next", "/"))
        if name := form.get("name", "").strip():
            principal, password_seq = await accounts.sign_in(name, form.get("password", ""))
        else:
            principal = services.tokens.authenticate(form.get("token", "").strip())
    except CrewJournalError as error:
        if isinstance(error, NotAuthenticated) and not name:
            accounts.failures.admit()
            accounts.failures.add()
        response = _sign_in_form(request, error.status, following, error=error)
        if isinstance(error, OverBudget):
            response.headers["Retry-After"] = str(ceil(error.retry_after_s))
        return response
    return _begin(request, principal, password_seq, following)


def _begin(request: Request, principal: Principal, password_seq: int | None, following: str) -> Response:
    """Begin a session, and show a page in it."""
    sessions = services_of(request).accounts.sessions
    session, cookie = sessions.begin(principal, password_seq, request.headers.get("user-agent", ""))
    response = RedirectResponse(within(session, following), HTTPStatus.SEE_OTHER)
    keep(response, session, cookie, secure=request.url.scheme == "https")
    return response


async def join_page(request: Request) -> Response:
    """The form for the password of an invited person. To look at it does not use up the link."""
    return await _join_form(request, HTTPStatus.OK)


async def _join_form(request: Request, status: int, error: CrewJournalError | None = None) -> Response:
    account = None
    try:
        account = await services_of(request).accounts.invited(request.path_params["secret"])
    except CrewJournalError as caught:
        status, error = caught.status, caught
    return _page("join.html", status, account=account, error=error, least=LEAST_PASSWORD, trace_id=trace_id_of(request))


async def join(request: Request) -> Response:
    """Set the password of an invited person, and begin a session."""
    try:
        form = await form_of(request)
        password = _repeated(form)
        principal, password_seq = await services_of(request).accounts.join(request.path_params["secret"], password)
    except CrewJournalError as error:
        return await _join_form(request, error.status, error)
    return _begin(request, principal, password_seq, "/")


def _repeated(form: dict[str, str]) -> str:
    """The new password of a form.

    Raises:
        InvalidQuery: If its repetition differs.
    """
    if (password := form.get("password", "")) != form.get("again", ""):
        raise InvalidQuery("the two passwords differ", hint="type the same password twice", field="again")
    return password


async def change_password(request: Request) -> Response:
    """Set another password; the other sessions of the person end, and this one begins again."""
    services = services_of(request)
    try:
        principal, session = await signed_in(request, services)
        form = await form_of(request)
        check_code(form, session.code)
        principal, password_seq = await services.accounts.change_password(
            principal, form.get("former", ""), _repeated(form)
        )
    except CrewJournalError as error:
        return _page("refused.html", error.status, error=error, trace_id=trace_id_of(request))
    return _begin(request, principal, password_seq, SIGN_INS)


async def sign_out(request: Request) -> Response:
    """End the session."""
    services = services_of(request)
    response = RedirectResponse("/ui/login?ended=1", HTTPStatus.SEE_OTHER)
    try:
        form = await form_of(request)
        _, session = await signed_in(request, services)
        check_code(form, session.code)
    except CrewJournalError:
        return response
    services.accounts.sessions.end(session)
    drop(response, session)
    return response


async def do(request: Request) -> Response:
    """Run the operation of a form, then show its page."""
    services = services_of(request)
    try:
        principal, session = await signed_in(request, services)
        form = await form_of(request)
        check_code(form, session.code)
        back = within(session, _local(form.pop("back", "/")))
        if (name := request.path_params["operation"]) in LONG:
            check_access(Access.NODE_OWNER, principal)
            long = services.operations
            long.start(name, long.verify() if name == "verify" else long.rebuild(None, actor=principal.actor))
            return RedirectResponse(back, HTTPStatus.SEE_OTHER)
        operation = FORMS.get(name)
        if operation is None:
            raise NotFound("no form asks for this", hint=f"there are {', '.join(sorted(FORMS))}")
        answer = await services.desk.run(operation, principal, _fields(operation, form))
        if operation is INVITE_PERSON:
            return _page("invited.html", HTTPStatus.OK, invited=answer, link=_link_of(request, answer.path), back=back)
        if operation.name in DOWNLOADED:
            attached = {"Content-Disposition": f'attachment; filename="{operation.name}.json"'}
            body = orjson.dumps(answer.model_dump(mode="json"), option=orjson.OPT_INDENT_2)
            return Response(body, media_type="application/json", headers=HEADERS | attached)
        if seq := getattr(answer, "seq", None):
            await services.queries.count(principal, parse_filters([]), min_seq=seq)  # so that the page shows the change
    except CrewJournalError as error:
        return _page("refused.html", error.status, error=error, trace_id=trace_id_of(request))
    return RedirectResponse(back, HTTPStatus.SEE_OTHER)


def _link_of(request: Request, path: str) -> str:
    return str(request.base_url).rstrip("/") + path


def _fields(operation: Operation[Any, Any], form: dict[str, str]) -> dict[str, Any]:
    """The fields of a request; a field of several values has them separated by commas, or one a line."""
    kinds = readers(operation.request)
    fields: dict[str, Any] = {}
    for name, value in form.items():
        if not value.strip() or (name == "workspace_id" and (name not in kinds or "all_workspaces" in form)):
            continue
        known = operation.request.model_fields.get(name)
        if known is not None and get_origin(known.annotation) is tuple:
            fields[name] = [part.strip() for part in value.replace("\n", ",").split(",") if part.strip()]
        else:
            fields[name] = kinds[name](value) if name in kinds else value
    return fields


def _local(address: str) -> str:
    """The address if it is a path of this service, else the first page: a link must not lead to another site."""
    ours = address.startswith("/") and not address.startswith("//") and "\\" not in address and address.isprintable()
    return address if ours else "/"

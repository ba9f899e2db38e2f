"""Sessions of pages: what their cookie is worth to a server on another port, to the API, and after their end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
import pytest
from support.running import running_node

from crew_journal.schemas.core.errors import NotAuthenticated, OverBudget
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.services.access.accounts import (
    FAILURES_A_MINUTE,
    FAILURES_A_NAME,
    LIFE_S,
    NAME_S,
    SESSIONS_PER_TOKEN,
    Failures,
    Session,
    Sessions,
)
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.runtime.node import Runtime
from crew_journal.services.web.sessions import FORMER_COOKIE, PREFIX, without_place

OTHER_PORT = "http://127.0.0.1:4444"


@pytest.fixture(scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Runtime]:
    async with running_node(tmp_path_factory.mktemp("sessions")) as runtime:
        yield runtime


def client(node: Runtime, **given: object) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=node.http_url, trust_env=False, timeout=60, **given)  # type: ignore[arg-type]


@dataclass
class SignedIn:
    http: httpx.AsyncClient
    home: str
    name: str
    value: str

    @property
    def header(self) -> dict[str, str]:
        return {"Cookie": f"{self.name}={self.value}"}


@asynccontextmanager
async def signed_in(node: Runtime, token: str) -> AsyncIterator[SignedIn]:
    async with client(node) as http:
        answer = await http.post("/ui/login", data={"token": token})
        name, value = answer.headers["set-cookie"].partition(";")[0].split("=", 1)
        yield SignedIn(http, answer.headers["location"], name, value)


def code_in(page: str) -> str:
    return page.partition('name="code" value="')[2].partition('"')[0]


async def test_a_server_on_another_port_receives_no_cookie_for_any_path_that_it_knows(node: Runtime) -> None:
    async with signed_in(node, node.owner_token) as visitor:
        for path in ("/", "/ui/", "/ui/journal", PREFIX, f"{PREFIX}x/", "/v1/journal", "/mcp"):
            sent = visitor.http.build_request("GET", OTHER_PORT + path)
            assert "cookie" not in sent.headers, "as in a browser, the jar knows hosts and paths, but no ports"
        sent = visitor.http.build_request("GET", OTHER_PORT + visitor.home)
        assert sent.headers["cookie"] == f"{visitor.name}={visitor.value}", "the path alone keeps it"


async def test_a_session_id_works_only_from_its_address_and_only_for_the_pages(node: Runtime) -> None:
    async with signed_in(node, node.owner_token) as visitor, client(node) as thief:
        assert visitor.value not in (node.owner_token, visitor.home)
        for path in ("/", "/ui/journal", f"{PREFIX}{'x' * 22}/journal"):
            answer = await thief.get(path, headers=visitor.header)
            assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (303, "/ui/login")
        for path in ("/v1/journal", "/v1/status", "/v1/admin/tokens", "/memory/status", "/v1/memory_stores"):
            for stolen in (visitor.header, {"Authorization": f"Bearer {visitor.value}"}):
                assert (await thief.get(path, headers=stolen)).status_code == 401, path
        for stolen in (visitor.header, {"Authorization": f"Bearer {visitor.value}"}):
            assert (await thief.post("/mcp", json={}, headers=stolen)).status_code == 401
        form = {"entry_id": "x", "reason": "forged"}
        forged = await thief.post(f"{visitor.home}do/retract", data=form, headers=visitor.header)
        assert forged.status_code == 403, "a form needs its code even with id and place"
        assert (await thief.get(visitor.home)).status_code == 303, "and the place opens nothing without the id"


async def test_signing_out_ends_the_session_at_the_service(node: Runtime) -> None:
    async with signed_in(node, node.owner_token) as visitor, client(node) as thief:
        page = (await visitor.http.get(visitor.home)).text
        refused = await visitor.http.post(f"{visitor.home}logout", data={})
        assert "set-cookie" not in refused.headers
        assert (await thief.get(visitor.home, headers=visitor.header)).status_code == 200
        done = await visitor.http.post(f"{visitor.home}logout", data={"code": code_in(page)})
        assert "Max-Age=0" in done.headers["set-cookie"]
        after = await thief.get(visitor.home, headers=visitor.header)
        assert (after.status_code, after.headers["location"]) == (303, "/ui/login?next=%2F&ended=1")


async def test_a_session_ends_with_its_token(node: Runtime) -> None:
    async with AsyncCrewJournal(node.http_url, node.owner_token) as journal:
        made = await journal.create_token(role="ADMIN", workspace_id="default")
        async with signed_in(node, made.token) as visitor:
            assert (await visitor.http.get(visitor.home)).status_code == 200
            await journal.revoke_token(made.token_id)
            assert (await visitor.http.get(visitor.home)).status_code == 303


async def test_a_link_without_a_session_leads_through_the_sign_in_to_its_page(node: Runtime) -> None:
    async with client(node) as http:
        first = await http.get("/ui/journal?agent_id=ada")
        form = await http.get(first.headers["location"])
        assert 'data-rest="/journal?agent_id=ada"' in form.text, "a script leads to the session that is still there"
        answer = await http.post("/ui/login", data={"token": node.owner_token, "next": "/ui/journal?agent_id=ada"})
        assert without_place(answer.headers["location"]) == "/ui/journal?agent_id=ada"
        assert (await http.get(answer.headers["location"])).status_code == 200
        ended = await http.get("/ui/login?next=/&ended=1")
        assert "data-ended" in ended.text, "else the script would lead back to the session that has ended"


async def test_a_browser_that_still_has_the_former_cookie_is_asked_to_delete_the_token_in_it(node: Runtime) -> None:
    async with client(node) as http:
        header = {"Cookie": f"{FORMER_COOKIE}={node.owner_token}"}
        assert (await http.get("/ui/journal", headers=header)).status_code == 303
        deleted = (await http.get("/ui/login", headers=header)).headers["set-cookie"]
        assert deleted.startswith(f'{FORMER_COOKIE}="";')
        assert {"Max-Age=0", "Path=/"} <= set(deleted.split("; "))


async def test_wrong_tokens_are_refused_shortly_after_some_and_a_valid_one_signs_in_all_the_same(
    node: Runtime,
) -> None:
    async with client(node) as http:
        answers = [await http.post("/ui/login", data={"token": "cj_wrong"}) for _ in range(FAILURES_A_MINUTE + 1)]
        assert {answer.status_code for answer in answers[:-1]} == {401}
        refused = answers[-1]
        assert (refused.status_code, refused.json()["budget"]) == (429, "sign-ins")
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert (await http.post("/ui/login", data={"token": node.owner_token})).status_code == 303


OWNER = Principal(token_id="owner", role=Role.OWNER, workspace_id=None)


class Bearers:
    """Knows the owner's token until it is revoked."""

    def __init__(self) -> None:
        self.revoked = False

    async def of(self, session: Session) -> Principal:
        if self.revoked:
            raise NotAuthenticated("revoked")
        return session.principal


async def test_a_session_ends_after_a_day_of_work_and_with_its_token_for_ever() -> None:
    now, bearers = [0.0], Bearers()
    sessions = Sessions(lambda: now[0])
    one, its_id = sessions.begin(OWNER)
    other, other_id = sessions.begin(OWNER)
    assert (await sessions.find(one.place, its_id, bearers.of))[1] is one
    with pytest.raises(NotAuthenticated):
        await sessions.find(one.place, other_id, bearers.of)
    bearers.revoked = True
    with pytest.raises(NotAuthenticated):
        await sessions.find(one.place, its_id, bearers.of)
    bearers.revoked = False
    with pytest.raises(NotAuthenticated):
        await sessions.find(one.place, its_id, bearers.of)
    now[0] = LIFE_S
    with pytest.raises(NotAuthenticated):
        await sessions.find(other.place, other_id, bearers.of)
    assert len(sessions) == 0


async def test_a_further_session_of_a_token_ends_its_oldest() -> None:
    sessions, bearers = Sessions(), Bearers()
    begun = [sessions.begin(OWNER) for _ in range(SESSIONS_PER_TOKEN + 1)]
    assert len(sessions) == SESSIONS_PER_TOKEN
    with pytest.raises(NotAuthenticated):
        await sessions.find(begun[0][0].place, begun[0][1], bearers.of)
    assert await sessions.find(begun[-1][0].place, begun[-1][1], bearers.of)


def test_the_failures_of_a_minute_are_forgotten_after_it() -> None:
    now = [0.0]
    failures = Failures(lambda: now[0])
    for _ in range(FAILURES_A_MINUTE):
        failures.admit()
        failures.add()
    with pytest.raises(OverBudget) as refused:
        failures.admit()
    assert refused.value.retry_after_s == 60
    now[0] = 60.0
    failures.admit()


def test_ten_wrong_passwords_close_a_name_for_ten_minutes_and_no_other_name() -> None:
    now = [0.0]
    failures = Failures(lambda: now[0])
    for _ in range(FAILURES_A_NAME):
        failures.admit("maria")
        failures.add("maria")
        now[0] += 5
    with pytest.raises(OverBudget) as refused:
        failures.admit("maria")
    assert refused.value.retry_after_s == NAME_S - 50
    failures.admit("tom")
    failures.clear("maria")
    failures.admit("maria")

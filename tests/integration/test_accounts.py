"""People who sign in by name, on a real node: the link, the password, their sessions, their decisions, and their end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from support.nats import running_broker
from support.nodes import running_nodes
from support.running import running_node

from crew_journal.schemas.core.errors import CrewJournalError, EntryConflict, InvalidQuery, NotAllowed, NotFound
from crew_journal.services.access.accounts import FAILURES_A_NAME
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.runtime.node import Runtime

WORDS = "correct horse battery staple"
OTHERS = "four other words here"
FOLDED_S = 5.0


@pytest.fixture(scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Runtime]:
    async with running_node(tmp_path_factory.mktemp("accounts")) as runtime:
        yield runtime


@asynccontextmanager
async def owner(node: Runtime) -> AsyncIterator[AsyncCrewJournal]:
    async with AsyncCrewJournal(node.http_url, node.owner_token) as journal:
        yield journal


@dataclass
class Visitor:
    """A browser: its cookies, and the page at which its session begins."""

    http: httpx.AsyncClient
    home: str = ""

    async def join(self, path: str, password: str = WORDS) -> httpx.Response:
        return self._at(await self.http.post(path, data={"password": password, "again": password}))

    async def sign_in(self, name: str, password: str = WORDS) -> httpx.Response:
        return self._at(await self.http.post("/ui/login", data={"name": name, "password": password}))

    def _at(self, answer: httpx.Response) -> httpx.Response:
        if answer.status_code == 303:
            self.home = answer.headers["location"].rpartition("/ui/s/")[2].partition("/")[0]
            self.home = f"/ui/s/{self.home}/"
        return answer

    async def is_in(self) -> bool:
        return (await self.http.get(self.home)).status_code == 200

    async def do(self, operation: str, **fields: str) -> httpx.Response:
        page = (await self.http.get(f"{self.home}sign-ins")).text
        code = page.partition('name="code" value="')[2].partition('"')[0]
        where = f"{self.home}{operation}" if operation == "password" else f"{self.home}do/{operation}"
        return self._at(await self.http.post(where, data={"code": code, **fields}))


@asynccontextmanager
async def visitor(node: Runtime) -> AsyncIterator[Visitor]:
    async with httpx.AsyncClient(base_url=node.http_url, trust_env=False, timeout=60) as http:
        yield Visitor(http)


async def joined(node: Runtime, browser: Visitor, name: str, **given: object) -> None:
    async with owner(node) as journal:
        invited = await journal.invite_person(name, **given)  # type: ignore[arg-type]
    answer = await browser.join(invited.path)
    assert answer.status_code == 303, answer.text


def hashes(node: Runtime) -> dict[str, str]:
    path = node._settings.data_dir / "passwords.json"
    assert path.stat().st_mode & 0o077 == 0
    return json.loads(path.read_text())


async def test_a_link_sets_a_password_once_and_is_no_token(node: Runtime) -> None:
    async with owner(node) as journal, visitor(node) as browser, visitor(node) as other:
        invited = await journal.invite_person("Maria", role="ADMIN")
        secret = invited.path.rpartition("/")[2]
        for _ in range(2):
            seen = await browser.http.get(invited.path)
            assert "Maria" in seen.text, "to look at it, as programs for chats do, does not use it up"
        assert (await browser.http.get("/v1/journal", headers={"Authorization": f"Bearer {secret}"})).status_code == 401
        short = await browser.join(invited.path, "short")
        assert (short.status_code, "characters" in short.text) == (400, True)
        differ = await browser.http.post(invited.path, data={"password": WORDS, "again": OTHERS})
        assert "differ" in differ.text
        answer = await browser.join(invited.path)
        cookie = answer.headers["set-cookie"]
        assert all(part in cookie for part in ("HttpOnly", "SameSite=strict", f"Path={browser.home}"))
        assert await browser.is_in()
        assert (await other.join(invited.path, OTHERS)).status_code == 404
        assert (await other.http.get(invited.path)).status_code == 404
        assert (await other.sign_in(" maria ")).status_code == 303, "case and blanks do not count in a name"
        assert await other.is_in()


async def test_a_decision_of_a_person_bears_the_name_in_the_journal_and_in_why(node: Runtime) -> None:
    async with owner(node) as journal, visitor(node) as browser:
        await joined(node, browser, "Björn Ødegård")
        known = await journal.remember("The gate code is 4711", agent_id="ada")
        await journal.get(known.entry_id, min_seq=known.seq)
        done = await browser.do("retract", entry_id=known.entry_id, reason="it was changed")
        assert done.status_code == 303
        retractions = [entry async for entry in journal.entries(types=["retraction.made"], include_archive=True)]
        assert [(entry.actor_type, entry.actor_id) for entry in retractions] == [("user", "Björn Ødegård")]
        assert "Björn Ødegård" in (await journal.why(known.entry_id)).model_dump_json()
        page = await browser.http.get(f"{browser.home}entry/{known.entry_id}")
        assert "retracted by <code>Björn Ødegård</code>" in page.text


async def test_a_wrong_password_and_an_unknown_name_get_the_same_answer_and_are_limited(node: Runtime) -> None:
    async with owner(node) as journal, visitor(node) as browser, visitor(node) as guest:
        await joined(node, browser, "tom")
        wrong, unknown = await guest.sign_in("tom", OTHERS), await guest.sign_in("nobody", OTHERS)
        assert wrong.status_code == unknown.status_code == 401
        assert "name or password is wrong" in wrong.text
        assert "name or password is wrong" in unknown.text
        for _ in range(FAILURES_A_NAME - 1):
            assert (await guest.sign_in("tom", OTHERS)).status_code == 401
        refused = await guest.sign_in("tom")
        assert refused.status_code == 429, "even the right one, else guessing would go on"
        assert int(refused.headers["retry-after"]) > 60
        assert await browser.is_in(), "a session goes on"
        assert (await guest.http.post("/ui/login", data={"token": node.owner_token})).status_code == 303
        again = await journal.invite_person("tom", role="ADMIN")
        assert again.again
        assert (await guest.join(again.path, OTHERS)).status_code == 303, "a new link opens the account again"
        assert not await browser.is_in(), "and ends the sessions of the former password"


async def test_sessions_are_listed_and_ended_by_their_person_and_by_an_owner_alone(node: Runtime) -> None:
    async with owner(node) as journal, visitor(node) as eva, visitor(node) as phone, visitor(node) as max_:
        await joined(node, eva, "eva")
        await phone.sign_in("eva")
        await joined(node, max_, "max")
        mine = {one["session_id"] for one in (await eva.http.get(f"{eva.home}sign-ins?format=json")).json()}
        everybodys = {one.session_id: one.person for one in (await journal.sessions()).sessions}
        assert {everybodys[session_id] for session_id in mine} == {"eva"}
        assert len(mine) == 2
        other = next(session_id for session_id, person in everybodys.items() if person == "max")
        assert (await eva.do("end_session", session_id=other)).status_code == 404
        assert await max_.is_in()
        of_phone = max(mine)
        assert (await eva.do("end_session", session_id=of_phone)).status_code == 303
        assert not await phone.is_in()
        assert await eva.is_in()
        await journal.end_session(other)
        assert not await max_.is_in()


async def test_another_password_ends_all_other_sessions(node: Runtime) -> None:
    async with visitor(node) as pia, visitor(node) as phone:
        await joined(node, pia, "pia")
        await phone.sign_in("pia")
        assert (await pia.do("password", former=OTHERS, password=OTHERS, again=OTHERS)).status_code == 401
        assert await phone.is_in()
        former = pia.home
        assert (await pia.do("password", former=WORDS, password=OTHERS, again=OTHERS)).status_code == 303
        assert pia.home != former
        assert await pia.is_in()
        assert not await phone.is_in()
        assert (await phone.sign_in("pia")).status_code == 401
        assert (await phone.sign_in("pia", OTHERS)).status_code == 303


async def test_removal_ends_the_sessions_and_deletes_the_password(node: Runtime) -> None:
    async with owner(node) as journal, visitor(node) as browser:
        await joined(node, browser, "zoe")
        account = next(one for one in (await journal.accounts()).accounts if one.person == "zoe")
        assert account.joined
        assert account.account_id in hashes(node)
        await journal.remove_account("ZOE")
        assert not await browser.is_in()
        assert account.account_id not in hashes(node)
        assert (await browser.sign_in("zoe")).status_code == 401
        with pytest.raises(NotFound):
            await journal.remove_account("zoe")
        again = await journal.invite_person("zoe")
        assert not again.again
        assert again.account_id != account.account_id


async def test_no_password_and_no_link_is_in_the_journal(node: Runtime) -> None:
    async with owner(node) as journal, visitor(node) as browser:
        invited = await journal.invite_person("secretive")
        await browser.join(invited.path)
        lines = [entry.model_dump_json() async for entry in journal.entries(include_archive=True)]
        assert sum('"account.password_set"' in line for line in lines) >= 1
        for hidden in (WORDS, OTHERS, "argon2", invited.path.rpartition("/")[2]):
            assert not any(hidden in line for line in lines), hidden
        assert all(text.startswith("$argon2id$") for text in hashes(node).values())


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"person": "owner"}, InvalidQuery),
        ({"person": "user"}, InvalidQuery),
        ({"person": "t_" + "0" * 32}, InvalidQuery),
        ({"person": "lea", "role": "LEAD"}, InvalidQuery),
        ({"person": "lea", "role": "ADMIN", "all_workspaces": True}, InvalidQuery),
        ({"person": "taken", "workspace_id": "elsewhere"}, EntryConflict),
    ],
)
async def test_an_invitation_that_makes_no_sense_is_refused(
    node: Runtime, given: dict[str, object], error: type[CrewJournalError]
) -> None:
    async with owner(node) as journal:
        await journal.invite_person("taken")
        with pytest.raises(error):
            await journal.invite_person(**given)  # type: ignore[arg-type]


async def test_an_admin_invites_no_owner_and_decides_about_none(node: Runtime) -> None:
    async with owner(node) as journal, visitor(node) as browser:
        made = await journal.create_token(role="ADMIN", workspace_id="acme")
        await joined(node, browser, "boss", role="OWNER", workspace_id="acme")
        async with AsyncCrewJournal(node.http_url, made.token) as admin:
            for attempt in (
                admin.invite_person("friend", role="OWNER"),
                admin.invite_person("boss", role="ADMIN"),
                admin.invite_person("friend", workspace_id="default"),
                admin.remove_account("boss"),
            ):
                with pytest.raises(NotAllowed):
                    await attempt
            assert [one.person for one in (await admin.accounts()).accounts] == ["boss"]
            assert (await admin.sessions()).sessions == ()
        assert await browser.is_in()


async def test_a_lead_sees_what_the_agent_of_that_name_may_see(node: Runtime) -> None:
    async with owner(node) as journal, visitor(node) as browser:
        await journal.remember("Ada keeps this to herself", agent_id="ada", crew_id="platform")
        await joined(node, browser, "lena", role="LEAD", crew_id="platform", agent_id="lena")
        assert (await browser.http.get(f"{browser.home}people")).status_code == 403
        page = (await browser.http.get(f"{browser.home}sign-ins")).text
        assert "Invite" not in page
        assert "Your password" in page


async def test_erasing_a_person_removes_the_account_and_its_events(node: Runtime) -> None:
    async with owner(node) as journal, visitor(node) as browser:
        await joined(node, browser, "Olga Erased", workspace_id="erasing")
        await journal.remember("Olga drinks tea", data_subject_id="olga erased", workspace_id="erasing")
        begun = await journal.forget(subject="olga erased", reason="she asked", workspace_id="erasing")
        assert not await browser.is_in(), "at once, before the messages are gone"
        states: list[str] = []

        async def is_completed() -> bool:
            states.append(
                (await journal.erasure(begun.erasure_id or "", min_seq=begun.seq, workspace_id="erasing")).state
            )
            return states[-1] == "completed"

        while not await is_completed():
            assert len(states) < 1_000
        assert "Olga Erased" not in {one.person for one in (await journal.accounts()).accounts}
        left = [e.model_dump_json() async for e in journal.entries(workspace_id="erasing", include_archive=True)]
        assert not any("Olga" in line and "account." in line for line in left)


async def test_a_password_works_after_a_restart_and_one_that_was_removed_meanwhile_is_deleted(tmp_path: Path) -> None:
    async with running_node(tmp_path) as first, visitor(first) as browser:
        await joined(first, browser, "rita", role="OWNER", all_workspaces=True)
        [account_id] = hashes(first)
    path = tmp_path / "passwords.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "a_removed": "$argon2id$"}))
    async with running_node(tmp_path) as second, visitor(second) as browser:
        assert set(hashes(second)) == {account_id}
        assert (await browser.sign_in("rita")).status_code == 303
        assert await browser.is_in()
        done = await browser.do("invite_person", person="guest", role="ADMIN", back="/ui/sign-ins")
        assert f"{second.http_url}/ui/join/" in done.text
        accounts = (await browser.http.get(f"{browser.home}sign-ins")).text
        assert "guest" in accounts


async def test_a_former_password_is_refused_by_the_node_on_which_it_was_set(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(running_broker(tmp_path / "broker"))
        at = {"nats": broker.url, "nats_user": broker.user, "nats_password": broker.password}
        nodes = await stack.enter_async_context(running_nodes(tmp_path, ("a", "b"), **at))
        one, two = [await stack.enter_async_context(visitor(node)) for node in nodes.values()]
        await joined(nodes["a"], one, "maria")
        assert (await one.sign_in("maria")).status_code == 303
        async with owner(nodes["b"]) as journal:
            invited = await journal.invite_person("maria")
        assert (await two.join(invited.path, OTHERS)).status_code == 303
        assert (await two.sign_in("maria", OTHERS)).status_code == 303
        async with asyncio.timeout(FOLDED_S):
            while await one.is_in():  # noqa: ASYNC110  # its session ends when the node has folded the new password
                await asyncio.sleep(0.05)
        assert (await one.sign_in("maria")).status_code == 401

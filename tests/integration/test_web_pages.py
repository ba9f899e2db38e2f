"""The pages at ``/``: signing in, what each shows to whom, the forms, and hostile text."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path

import httpx
import pytest
from support.embedding import until
from support.minilm import minilm_cache
from support.running import running_node

from crew_journal.schemas.core.principal import Role
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.journal.broker.connection import connect
from crew_journal.services.runtime.node import Runtime
from crew_journal.services.web.pages import PAGES, Page
from crew_journal.services.web.routes import cell_text, templates
from crew_journal.services.web.sessions import PREFIX, without_place

HOSTILE = "<script>alert(1)</script> \"' onload=x <img src=x onerror=y> \u202etxet desrever\u202c {{ 7 * 1009 }}"
ENTRY = {"entry_type": "run.completed", "agent_id": "ada", "crew_id": "platform"}


@pytest.fixture(scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Runtime]:
    async with running_node(tmp_path_factory.mktemp("pages")) as runtime:
        async with AsyncCrewJournal(runtime.http_url, runtime.owner_token) as journal:
            hostile = {
                **ENTRY,
                "id": "hostile",
                "summary": HOSTILE,
                "payload": {HOSTILE: [HOSTILE]},
                "actor_id": "<b>x",
                "trace_id": "run-1",
            }
            await journal.append(hostile)
            await journal.add_lesson(HOSTILE, crew_id="platform")
            await journal.kg_add(HOSTILE[:60], HOSTILE[:60], HOSTILE[:60], valid_from="2026-01-01")
            await journal.register_agent("ada", crew_id="platform", memory_enabled=True)
            await journal.document_write("AGENT", "append", HOSTILE[:40], agent_id="ada")
            await journal.append({**ENTRY, "id": "plain", "summary": "The checkout deploy was denied"})
            last = await journal.append(
                {**ENTRY, "id": "far", "workspace_id": "far", "summary": "Of another workspace"}
            )
            await journal.count(min_seq=last.seq)
        yield runtime


def stranger(node: Runtime) -> httpx.AsyncClient:
    """A client that follows no redirect and has not signed in."""
    return httpx.AsyncClient(base_url=node.http_url, trust_env=False, timeout=60)


@asynccontextmanager
async def browser(node: Runtime, token: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client that has signed in; its addresses are those within its session."""
    async with stranger(node) as http:
        answer = await http.post("/ui/login", data={"token": token, "next": "/"})
        assert answer.status_code == 303
        http.base_url = httpx.URL(node.http_url + answer.headers["location"])
        yield http


async def token_of(node: Runtime, role: Role, workspace: str = "default", agent: str | None = None) -> str:
    async with AsyncCrewJournal(node.http_url, node.owner_token) as journal:
        made = await journal.create_token(role=role.value, workspace_id=workspace, agent_id=agent)
        return made.token


def code_in(page: str) -> str:
    found = re.search(r'name="code" value="([0-9a-f]{64})"', page)
    assert found is not None
    return found[1]


async def test_without_a_token_every_page_leads_to_the_sign_in_and_back(node: Runtime) -> None:
    async with stranger(node) as http:
        for path in ("/", "/ui/journal?severities=warn", "/ui/entry/plain", "/ui/status"):
            answer = await http.get(path)
            assert answer.status_code == 303
            form = await http.get(answer.headers["location"])
            assert f'name="next" value="{path}"' in unescape(form.text)
        wrong = await http.post("/ui/login", data={"token": "cj_wrong", "next": "/"})
        assert (wrong.status_code, len(wrong.cookies)) == (401, 0)


async def test_signing_in_sets_a_cookie_that_no_script_no_other_site_and_no_other_server_can_use(node: Runtime) -> None:
    async with stranger(node) as http:
        answer = await http.post("/ui/login", data={"token": node.owner_token, "next": "/ui/health"})
        location, cookie = answer.headers["location"], answer.headers["set-cookie"]
        place = re.fullmatch(rf"{PREFIX}([\w-]{{22}})/health", location)
        assert (answer.status_code, place is not None) == (303, True)
        assert {"HttpOnly", "SameSite=strict", f"Path={location.removesuffix('health')}"} <= set(cookie.split("; "))
        assert node.owner_token not in cookie + location
        assert (await http.get(location)).status_code == 200


@pytest.mark.parametrize("following", ["https://evil.example/", "//evil.example/", "/\\evil.example", "evil"])
async def test_signing_in_never_leads_to_another_site(node: Runtime, following: str) -> None:
    async with stranger(node) as http:
        answer = await http.post("/ui/login", data={"token": node.owner_token, "next": following})
        assert without_place(answer.headers["location"]) == "/"


LISTS = [page for page in PAGES if page.rows and "{" not in page.path and page.path != "/ui/document"]
OPENED = {
    "{entry_id}": "hostile",
    "{name:path}": "hostile",
    "{run_id}": "run-1",
    "{user}": "%3Cb%3Ex",
    "/document": "/document?tier=AGENT&agent_id=ada",
    "/erase": "/erase?ids=hostile&reason=<b>x",
}
"""What stands in the paths of pages about one thing."""
SHOWS = {
    f"{name}.html"
    for name in ("now", "entry", "journal", "recall", "document", "learned", "facts", "why", "run", "runs", "receipts")
}
"""Templates that show the hostile text itself."""


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "{proposal_id}" not in page.path], ids=lambda page: page.title
)
async def test_every_page_shows_hostile_text_as_text_under_a_strict_policy(node: Runtime, page: Page) -> None:
    path = page.path.removeprefix("/ui")
    for part, value in OPENED.items():
        path = (
            path.replace(part, value) if part in path and not (part == "/document" and path == "/documents") else path
        )
    async with browser(node, node.owner_token) as http:
        url = httpx.URL(path).copy_merge_params({"query": "alert onload desrever", "q": "alert"})
        if page.template == "receipts.html":
            await http.get("/recall", params={"query": HOSTILE})

        async def recorded() -> bool:
            shown = (await http.get(url)).text
            return page.template != "receipts.html" or "&lt;script&gt;" in shown  # receipts are recorded in batches

        await until(recorded, "a receipt")
        answer = await http.get(url)
    assert answer.status_code == 200, answer.text
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    for never in ("<script>alert", "<img", "<b>x", "\u202e", "\u202c", "7063"):
        assert never not in answer.text
    assert 'style="' not in answer.text
    if page.template in SHOWS:
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in answer.text
    if page.template in ("entry.html", "journal.html", "recall.html"):
        assert "{{ 7 * 1009 }}" in answer.text


@pytest.mark.parametrize("page", LISTS)
async def test_every_list_is_json_and_csv_that_no_spreadsheet_executes(node: Runtime, page: Page) -> None:
    path = page.path.removeprefix("/ui")
    async with browser(node, node.owner_token) as http:
        params = {"query": "deploy", "format": "json"}
        rows = (await http.get(path, params=params)).json()
        table = await http.get(path, params=params | {"format": "csv"})
        assert (await http.get(path, params=params | {"format": "xls"})).status_code == 404
        assert (await http.get(path, params={"format": "csv"})).status_code == 200, "without a question there is no hit"
    assert table.headers["content-type"].startswith("text/csv")
    named = csv.DictReader(io.StringIO(table.text)).fieldnames
    assert set(named or ()) == {column for row in rows for column in row}


def test_cell_that_a_spreadsheet_would_execute_begins_with_an_apostrophe() -> None:
    assert [cell_text(value) for value in ("=1+1", "@x", "plain", -3, None)] == ["'=1+1", "'@x", "plain", "-3", ""]


async def test_a_contradiction_is_settled_on_the_first_page(tmp_path: Path) -> None:
    async with running_node(tmp_path, embedder="minilm", cache_dir=minilm_cache().parent) as node:
        async with AsyncCrewJournal(node.http_url, node.owner_token) as journal:
            for entry_id, owner in (("was-chen", "Chen"), ("now-dora", "Dora")):
                said = {**ENTRY, "id": entry_id, "entry_type": "memory.remembered", "agent_id": owner.lower()}
                await journal.append({**said, "summary": f"The owner of the nightly order backup is {owner}"})

            async def proposed() -> object:
                return (await journal.health()).review

            await until(proposed, "a proposed contradiction")
        async with browser(node, node.owner_token) as http:
            page = (await http.get("/")).text
            assert "Do these contradict each other?" in page
            pair = {"entry_id": "now-dora", "dst_entry_id": "was-chen", "relation": "supersedes"}
            done = await http.post("/do/relate", data={"code": code_in(page), "back": "/", **pair})
            assert done.status_code == 303
            assert "superseded by" in (await http.get("/entry/was-chen")).text


async def test_an_entry_is_corrected_and_a_person_erased_by_forms(node: Runtime) -> None:
    async with AsyncCrewJournal(node.http_url, node.owner_token) as journal:
        said = {**ENTRY, "id": "of-tom", "entry_type": "memory.remembered", "workspace_id": "persons"}
        last = await journal.append({**said, "summary": "Tom has the blue badge", "data_subject_id": "tom@example"})
        await journal.count(workspace_id="persons", min_seq=last.seq)
    async with browser(node, node.owner_token) as http:
        inside = {"workspace_id": "persons"}
        code = code_in((await http.get("/entry/of-tom", params=inside)).text)
        corrected = {"id": "of-tom", "text": "Tom has the green badge", "reason": "wrong colour", "back": "/", **inside}
        assert (await http.post("/do/correct", data={"code": code, **corrected})).status_code == 303
        assert "green badge" in (await http.get("/corrections", params=inside)).text
        covered = {"subject": "tom@example", "reason": "he asked", **inside}
        exported = await http.post("/do/export_person", data={"code": code, **covered})
        assert "attachment" in exported.headers["content-disposition"]
        assert "blue badge" in exported.text
        plan = (await http.get("/erase", params=covered)).text
        assert "Nothing has been changed" in plan
        assert (await http.get("/entry/of-tom", params=inside)).status_code == 200
        assert (await http.post("/do/forget", data={"code": code, "back": "/people", **covered})).status_code == 303

        async def gone() -> bool:
            return (await http.get("/entry/of-tom", params=inside)).status_code == 404

        await until(gone, "the erasure")


async def test_the_owner_watches_a_rebuild_and_an_agent_cannot_start_one(node: Runtime) -> None:
    async with browser(node, node.owner_token) as http:
        code = code_in((await http.get("/status")).text)
        verify = {"code": code, "back": "/ui/status"}

        async def started() -> bool:  # 503 while the erasure of the test before still compares its views
            return (await http.post("/do/verify", data=verify)).status_code == 303

        await until(started, "the start of verify")

        async def verified() -> bool:
            return "the views equal a fresh rebuild" in (await http.get("/status")).text

        await until(verified, "the end of verify")
    async with browser(node, await token_of(node, Role.ADMIN)) as http:
        code = code_in((await http.get("/")).text)
        assert (await http.post("/do/rebuild", data={"code": code})).status_code == 403


async def test_an_agents_token_sees_its_own_workspace_and_no_page_of_operators(node: Runtime) -> None:
    async with browser(node, await token_of(node, Role.AGENT, agent="ada")) as http:
        shown = (await http.get("/")).text
        assert "Dead letters" not in shown
        assert (await http.get("/letters")).status_code == 403
        assert (await http.get("/journal", params={"workspace_id": "far"})).status_code == 403
        assert "Of another workspace" not in (await http.get("/journal")).text
        assert (await http.get("/entry/far")).status_code == 404


async def test_the_owner_looks_into_a_workspace_by_its_address(node: Runtime) -> None:
    async with browser(node, node.owner_token) as http:
        shown = (await http.get("/journal", params={"workspace_id": "far"})).text
        assert "Of another workspace" in shown
        assert "/entry/far?workspace_id=far" in shown


async def test_an_entry_is_retracted_and_restored_by_the_forms_of_its_page(node: Runtime) -> None:
    async with browser(node, node.owner_token) as http:
        page = (await http.get("/entry/plain")).text
        form = {"code": code_in(page), "back": "/ui/entry/plain", "entry_id": "plain", "reason": "was a drill"}
        done = await http.post("/do/retract", data=form, headers={"Origin": node.http_url})
        assert (done.status_code, without_place(done.headers["location"])) == (303, "/ui/entry/plain")
        assert "was a drill" in (await http.get("/entry/plain")).text
        assert (await http.post("/do/restore", data={**form, "reason": "it was real"})).status_code == 303
        assert "was a drill" not in (await http.get("/entry/plain")).text


async def test_a_form_from_another_site_changes_nothing(node: Runtime) -> None:
    form = {"entry_id": "plain", "reason": "forged", "back": "/"}
    async with browser(node, node.owner_token) as http:
        code = code_in((await http.get("/")).text)
        assert (await http.post("/do/retract", data=form)).status_code == 403
        assert (await http.post("/do/retract", data={**form, "code": "0" * 64})).status_code == 403
        foreign = await http.post(
            "/do/retract", data={**form, "code": code}, headers={"Origin": "https://evil.example"}
        )
        assert foreign.status_code == 403
        assert (await http.post("/do/create_token", data={**form, "code": code})).status_code == 404
        assert "forged" not in (await http.get("/entry/plain")).text
    async with stranger(node) as http:
        assert (await http.post("/ui/s/elsewhere/do/retract", data={**form, "code": code})).status_code == 401


async def test_wrong_fields_are_answered_with_the_field_and_the_fix(node: Runtime) -> None:
    async with browser(node, node.owner_token) as http:
        code = code_in((await http.get("/")).text)
        answer = await http.post("/do/set_priority", data={"code": code, "entry_id": "plain", "priority": "KING"})
        assert answer.status_code == 422
        assert "priority" in answer.text


async def test_signing_out_forgets_the_token_only_on_our_own_request(node: Runtime) -> None:
    async with browser(node, node.owner_token) as http:
        forged = await http.post("/logout", data={})
        assert "set-cookie" not in forged.headers
        gone = await http.post("/logout", data={"code": code_in((await http.get("/")).text)})
        assert "Max-Age=0" in gone.headers["set-cookie"]


async def test_files_of_the_pages_are_served_and_nothing_beside_them(node: Runtime) -> None:
    async with stranger(node) as http:
        for name in sorted(path.name for path in (Path(__file__).parents[2] / "services/web/static").iterdir()):
            assert (await http.get(f"/ui/static/{name}")).status_code == 200
        for name in ("../pages.py", "%2e%2e/pages.py", "/etc/passwd"):
            assert (await http.get(f"/ui/static/{name}")).status_code in (404, 405)


@pytest.mark.parametrize(("since", "found"), [("2h", True), ("2024-01-31", True), ("2099-01-31", False)])
async def test_times_of_a_filter_may_be_written_as_a_person_writes_them(node: Runtime, since: str, found: bool) -> None:
    async with browser(node, node.owner_token) as http:
        shown = (await http.get("/journal", params={"since": since, "agent_id": "ada"})).text
    assert ("The checkout deploy was denied" in shown) is found
    assert f'value="{since}"' in shown, "the form keeps what was typed"


@pytest.mark.parametrize(
    ("path", "wrong"),
    [("/journal", {"since": "soon", "q": "deploy"}), ("/recall", {"query": "x", "recipe": "y"})],
)
async def test_a_form_stays_beside_what_is_wrong_with_it(node: Runtime, path: str, wrong: dict[str, str]) -> None:
    async with browser(node, node.owner_token) as http:
        refused = await http.get(path, params=wrong)
    assert refused.status_code == 400
    assert '<p class="bad">' in refused.text
    assert '<form class="filters">' in refused.text
    assert f'value="{next(iter(wrong.values()))}"' in refused.text, "the form keeps what was typed"


async def test_the_bar_of_a_metric_is_as_long_as_its_value() -> None:
    health = {"score": 72.64, "band": "yellow", "measured_at": "2026-11-22T22:52:19Z", "metrics": {"freshness": 14.14}}
    macros = vars(templates().get_template("parts.html").module)
    shown = macros["health_shown"]({**health, "reasons": (), "next_step": None})
    assert 'aria-label="freshness"><rect width="14.1"' in shown
    assert "14.1</td>" in shown


async def test_a_dead_letter_is_shown_with_its_body(node: Runtime) -> None:
    async with AsyncCrewJournal(node.http_url, node.owner_token) as journal:
        broker = await journal.broker()
        client = await connect(broker.url, broker.user, broker.password, "test")
        await client.jetstream().publish("journal.default._.scout.note", b"<b>no json")
        await client.close()

        async def parked() -> object:
            return (await journal.dead_letters()).dead_letters

        await until(parked, "a dead letter")
    async with browser(node, node.owner_token) as http:
        assert "<pre><bdi>&lt;b&gt;no json</bdi></pre>" in (await http.get("/letters")).text

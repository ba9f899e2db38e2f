"""Reads as of a past moment: what a node answered then, without what was erased since."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from pydantic import ValidationError
from support.cli import Cli
from support.embedding import until
from support.fed_node import PAST, caught_past, check_moments, differences, still
from support.minilm import minilm_cache
from support.nats import PROJECT
from support.requests_of import fields_of
from support.running import running_node
from support.stack import Stack
from support.tool_calls import Place, furnished

from crew_journal.schemas.core.errors import NotFound
from crew_journal.schemas.core.operation import Operation, body_problems
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.operations import ALL
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.runtime.node import Runtime

MOVING = frozenset(
    {
        "receipt",
        "view_seq",
        "trace_id",
        "score",
        "scores",
        "embedder",
        "score_parts",
        "age_seconds",
        "indexed_at",
        "now",
        "recency",
    }
)
"""Fields that differ between two answers to the same request, or with the time of asking."""
DEADLINE_S = 60
AGED = 1e-3
"""What a score loses in a few seconds."""
REST_S = 1.5
"""Seconds without a new sequence after which reactors are taken to have ended."""


class _Asking:
    """As much of a stack as ``furnished`` needs, over a whole node."""

    def __init__(self, node: Runtime) -> None:
        self._node = node

    def client(self, token: str | None = None) -> AsyncCrewJournal:
        return AsyncCrewJournal(self._node.http_url, token=token or self._node.owner_token)

    async def token(self, role: Role, workspace: str, *, agent: str, crew: str) -> SimpleNamespace:
        async with self.client() as owner:
            made = await owner.create_token(role=role.value, workspace_id=workspace, agent_id=agent, crew_id=crew)
        return SimpleNamespace(plaintext=made.token)


@asynccontextmanager
async def world(data_dir: Path, **given: Any) -> AsyncIterator[tuple[Runtime, Place, httpx.AsyncClient]]:
    async with running_node(data_dir, **given) as node:
        place = await furnished(cast(Stack, _Asking(node)), "acme", "Otto")
        headers = {"Authorization": f"Bearer {node.owner_token}"}
        async with httpx.AsyncClient(base_url=node.http_url, headers=headers, timeout=60) as http:
            await _classified(http)
            yield node, place, http


async def _classified(http: httpx.AsyncClient) -> None:
    """Wait until no drawer is to be classified."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            drawers = (await http.get("/v1/palace/drawers", params={"workspace_id": "acme"})).json()["drawers"]
            if all(drawer["state"] != "raw" for drawer in drawers):
                return
            await asyncio.sleep(REST_S)


async def ask(http: httpx.AsyncClient, operation: Operation[Any, Any], place: Place, **more: Any) -> Any:
    """The answer without what moves."""
    known = place.values("", operation.name) | {"agent_id": "ada", "crew_id": "red", "user": "maria", "seq": 1}
    known |= {"kind": "fact", "name": place.fact} if operation.name in ("layered_read", "layered_query") else {}
    fields = {**fields_of(operation, known), "workspace_id": place.workspace, **more}
    if "agent_id" in operation.request.model_fields:
        fields["agent_id"] = "ada"
    if "workspace_id" not in operation.request.model_fields:
        del fields["workspace_id"]
    path = operation.path.format(**{name: fields.pop(name) for name in operation.path_fields})
    sent: dict[str, Any] = {"json": fields} if operation.has_body else {"params": fields}
    response = await http.request(operation.method, path, **sent)
    assert response.status_code < httpx.codes.BAD_REQUEST or response.status_code == httpx.codes.NOT_FOUND, (
        f"{operation.name}: {response.text}"
    )
    return still(response.json(), MOVING)


async def head(http: httpx.AsyncClient) -> int:
    """The sequence that all views have reached, once nothing is under way."""
    added = await http.post("/v1/journal", json={"entry_type": "run.completed", "summary": "now", "workspace_id": "x"})
    seq = added.json()["entries"][0]["seq"]
    before = 0
    while before < seq:
        before = seq
        await asyncio.sleep(REST_S)
        counted = await http.get("/v1/journal/count", params={"workspace_id": "x", "min_seq": seq})
        seq = int(counted.json()["view_seq"])
    return seq


async def test_every_operation_with_as_of_answers_as_it_did_then(tmp_path: Path) -> None:
    async with world(tmp_path) as (node, place, http):
        seq = await head(http)
        then = {operation.name: await ask(http, operation, place) for operation in PAST}
        after = await head(http)  # what was asked counts as a use, of which a later question may have been told
        async with AsyncCrewJournal(node.http_url, token=node.owner_token) as owner:
            await owner.document_write("AGENT", "append", "- later", agent_id="ada", workspace_id="acme")
            await owner.add_drawer("works", "cellar", "The press was sold", workspace_id="acme")
            await owner.kg_add("something", "keeps", "the new press", workspace_id="acme")
            await owner.retract("acme-first", "it was wrong", workspace_id="acme")
            await owner.register_agent("zoe", crew_id="red", workspace_id="acme")
            for number in range(3):
                entry = {"entry_type": "run.completed", "summary": f"Who keeps the press? Zoe does, {number}"}
                await owner.append({**entry, "workspace_id": "acme", "agent_id": "ada", "crew_id": "red"})
        await head(http)
        assert len(PAST) >= 50
        now = {operation.name: await ask(http, operation, place) for operation in PAST}
        assert sum(now[name] != then[name] for name in then) >= 10, "what came later changes many answers"
        wrong = {}
        for operation in PAST:
            for moment in (seq, after):
                answer = await ask(http, operation, place, **{str(operation.past): str(moment)})
                if not (found := differences(answer, then[operation.name], aged=AGED)):
                    break
                wrong.setdefault(operation.name, found)
            else:
                continue
            wrong.pop(operation.name, None)
        assert wrong == {}, "\n".join(f"@@{name} {found}" for name, found in wrong.items())


async def test_list_count_and_get_as_of_a_sequence_and_a_time(tmp_path: Path) -> None:
    async with world(tmp_path) as (_node, _place, http):
        seq = await head(http)
        at = {"workspace_id": "acme", "types": "run.completed,note"}
        before = (await http.get("/v1/journal/count", params=at)).json()["count"]
        listed = (await http.get("/v1/journal", params={**at, "limit": 2})).json()["entries"]
        added = await http.post(
            "/v1/journal", json={"entry_type": "note", "summary": "late", "workspace_id": "acme", "id": "late"}
        )
        await http.get("/v1/journal/count", params={**at, "min_seq": added.json()["entries"][0]["seq"]})
        past = {**at, "as_of": str(seq)}
        assert (await http.get("/v1/journal/count", params=past)).json() == {"count": before, "view_seq": seq}
        assert (await http.get("/v1/journal", params={**past, "limit": 2})).json()["entries"] == listed
        late, here = "/v1/journal/late", {"workspace_id": "acme"}
        assert (await http.get(late, params={**here, "as_of": str(seq)})).status_code == httpx.codes.NOT_FOUND
        time = (await http.get(late, params=here)).json()["ts"]
        later = (await http.get("/v1/journal/count", params={**at, "as_of": time})).json()
        assert later["view_seq"] >= seq


async def test_python_client_reads_entries_as_of_a_moment_right_after_its_write(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, AsyncCrewJournal(node.http_url, token=node.owner_token) as client:
        for number in range(3):
            entry = {"entry_type": "note", "summary": f"note {number}", "id": f"n{number}"}
            seq = (await client.append(entry)).seq
            at: dict[str, Any] = {"as_of": seq, "min_seq": seq}
            assert (await client.list(types="note", **at)).entries[0].id == f"n{number}"
            assert (await client.count(types="note", **at)).count == number + 1
            assert (await client.get(f"n{number}", **at)).seq == seq
            if number:
                with pytest.raises(NotFound):
                    await client.get(f"n{number}", as_of=seq - 1)


def test_commands_for_entries_and_settings_answer_as_of_a_moment(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    first = cli("publish", "the crane is red", "--json").json["entries"][0]
    cli("workspace", "settings", "--cost-nudge-usd", "2.5")
    second = cli("publish", "the crane is blue", "--json").json["entries"][0]
    then = ("--as-of", str(first["seq"]))
    assert cli("list", "--type", "note.written", "--count").out.strip() == "2"
    assert cli("list", "--type", "note.written", "--count", *then).out.strip() == "1"
    assert [one["id"] for one in cli("list", "--json", *then).json["entries"]] == [first["id"]]
    assert cli("get", first["id"], "--json", *then).json["summary"] == "the crane is red"
    assert cli("get", second["id"], *then, code=4).err
    assert cli("workspace", "settings", "--json").json["cost_nudge_usd"] == 2.5
    assert cli("workspace", "settings", "--json", *then).json["cost_nudge_usd"] != 2.5
    assert "--as-of" in cli("workspace", "settings", "--cost-nudge-usd", "3", *then, code=2).err


async def test_a_moment_that_the_journal_does_not_have_is_refused_by_its_field(tmp_path: Path) -> None:
    async with world(tmp_path) as (_node, _place, http):
        for as_of in ("0", "999999", "yesterday", "2020-01-01T00:00:00Z"):
            for path in ("/v1/journal/count", "/v1/learned-rules"):
                refused = await http.get(path, params={"as_of": as_of})
                if refused.status_code != httpx.codes.NOT_FOUND:
                    assert (refused.status_code, refused.json()["field"]) == (400, "as_of"), as_of


@pytest.mark.parametrize("operation", [one for one in ALL if not one.past], ids=lambda one: one.name)
def test_an_operation_that_cannot_answer_as_of_refuses_it_by_name(operation: Operation[Any, Any]) -> None:
    with pytest.raises(ValidationError) as refused:
        operation.request.model_validate({"as_of": "3", "reason": "asked"})
    assert "as_of" in [problem.field for problem in body_problems(refused.value, operation.request)]


async def test_what_was_erased_since_is_not_in_a_past_view(tmp_path: Path) -> None:
    async with world(tmp_path) as (node, place, http):
        seq = await head(http)
        recall = next(operation for operation in PAST if operation.name == "recall")
        asked = {"query": "Who keeps the press?", "as_of": str(seq)}
        found = await ask(http, recall, place, **asked)
        assert "acme-second" in str(found)
        begun = await http.post(
            "/v1/admin/forget", json={"ids": ["acme-second"], "reason": "asked", "workspace_id": "acme"}
        )
        async with AsyncCrewJournal(node.http_url, token=node.owner_token) as owner:
            erasure = await owner.erasure(begun.json()["erasure_id"], workspace_id="acme")
            while erasure.state != "completed":
                erasure = await owner.erasure(begun.json()["erasure_id"], workspace_id="acme")
        assert "acme-second" not in str(await ask(http, recall, place, **asked))


@pytest.mark.parametrize(
    ("turns", "moments"), [(40, 1), pytest.param(1_451, 50, marks=[pytest.mark.nightly, pytest.mark.timeout(3_600)])]
)
async def test_conversations_as_of_random_points_are_those_of_a_node_fed_up_to_there(
    tmp_path: Path, turns: int, moments: int
) -> None:
    folder = Path(os.environ.get("CREW_JOURNAL_SHARED_DATA", PROJECT.parent / "shared" / "data")) / "locomo_dev"
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent")
    lines = (folder / "journal.jsonl").read_text("utf-8").splitlines()
    entries = [json.loads(line) for line in lines[:turns]]
    asked = [json.loads(line)["query"] for line in (folder / "queries.jsonl").read_text("utf-8").splitlines()]
    draw = random.Random(2)
    given = {"embedder": "minilm", "cache_dir": minilm_cache().parent}
    with caught_past() as started:
        async with (
            running_node(tmp_path / "node", **given) as node,
            AsyncCrewJournal(node.http_url, token=node.owner_token) as client,
        ):
            for first in range(0, len(entries), 250):
                await client.append_batch(entries[first : first + 250])

            async def embedded() -> bool:
                found = (await client.embedding_models()).models
                return bool(found) and (found[0].vectors or 0) >= len(entries)

            await until(embedded, "vectors of all turns", deadline_s=900)
            last = (await client.count(workspace_id="locomo")).view_seq
            agent = entries[-1]["agent_id"]
            principals = [
                Principal(token_id="owner", role=Role.OWNER, workspace_id=None),
                Principal(token_id="t", role=Role.AGENT, workspace_id="locomo", agent_id=agent, crew_id=agent),
            ]
            seqs = draw.sample(range(20, last + 1), moments)
            compared, answered = await check_moments(
                started[0], tmp_path, seqs, draw, principals, "locomo", asked, agent
            )
    assert compared == moments * len(PAST) * len(principals)
    assert answered > compared / 2


async def test_recall_by_meaning_as_of_then_uses_the_vectors_of_then(tmp_path: Path) -> None:
    given = {"embedder": "minilm", "cache_dir": minilm_cache().parent}
    async with (
        running_node(tmp_path, **given) as node,
        AsyncCrewJournal(node.http_url, token=node.owner_token) as client,
    ):
        first = await client.append(
            {"entry_type": "memory.remembered", "summary": "The blue van goes to Ulm", "id": "van"}
        )
        found = None
        for _ in range(200):
            found = await client.recall("lorry destination", recipe="dense", min_seq=first.seq)
            if found.hits:
                break
        assert found is not None
        assert found.hits
        seq = found.view_seq
        await client.append({"entry_type": "memory.remembered", "summary": "The lorry goes to Bonn", "id": "lorry"})
        past = await client.recall("lorry destination", recipe="dense", as_of=str(seq))
        assert [hit.entry_id for hit in past.hits] == ["van"]

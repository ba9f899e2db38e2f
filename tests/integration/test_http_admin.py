"""Administration over HTTP: tokens, dead letters, long operations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.stack import Stack

from crew_journal.schemas.core.errors import (
    CrewJournalError,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    RefusedByOneView,
)
from crew_journal.schemas.core.principal import Role
from crew_journal.schemas.operate.operations import DeadLetter
from crew_journal.services.access.tokens import TokenRegistry, ensure_owner_token
from crew_journal.services.data_dir import node_id


async def test_a_token_is_shown_once_and_its_secret_is_nowhere_else(stack: Stack) -> None:
    async with stack.http() as http:
        asked = {"role": "AGENT", "workspace_id": "acme", "agent_id": "ada", "crew_id": "core", "label": "laptop"}
        made = await http.post("/v1/admin/tokens", json=asked)
        assert made.status_code == 201
        token = made.json()["token"]
        listed = (await http.get("/v1/admin/tokens", params={"workspace_id": "acme"})).text
        journal = (await http.get("/v1/journal", params={"workspace_id": "acme"})).text
        assert "laptop" in listed
        assert "token.created" in journal
        assert token not in listed + journal
    async with stack.http(token) as agent:
        assert (await agent.get("/v1/journal")).json()["entries"] == []


async def test_a_revoked_token_is_refused_at_once_and_after_a_restart(stack: Stack) -> None:
    made = await stack.token(Role.LEAD, "acme", agent="liz", crew="core")
    async with stack.http() as http, stack.http(made.plaintext) as lead:
        assert (await lead.get("/v1/journal")).status_code == 200
        revoked = await http.delete(f"/v1/admin/tokens/{made.info.token_id}")
        assert (revoked.status_code, revoked.json()["revoked"]) == (200, True)
        assert (await lead.get("/v1/journal")).status_code == 401
        assert (await http.delete(f"/v1/admin/tokens/{made.info.token_id}")).status_code == 404
        shown = (await http.get("/v1/admin/tokens")).json()["tokens"]
        assert next(t for t in shown if t["token_id"] == made.info.token_id)["revoked_ms"] is not None
    kept = await stack.token(Role.AGENT, "acme", agent="kim")
    fresh = TokenRegistry(stack.store, stack.services.journal, stack.owner)  # type: ignore[arg-type]  # records nothing here
    fresh.load()
    fresh.close()
    with pytest.raises(NotAuthenticated):
        fresh.authenticate(made.plaintext)
    assert fresh.authenticate(kept.plaintext).agent_id == "kim"
    assert fresh.authenticate(stack.owner).role is Role.OWNER


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"role": "OWNER"}, 403),
        ({"role": "ADMIN"}, 201),
        ({"role": "ADMIN", "workspace_id": "acme"}, 201),
        ({"role": "ADMIN", "workspace_id": "other"}, 403),
        ({"role": "ADMIN", "all_workspaces": True}, 403),
        ({"role": "LEAD", "agent_id": "liz"}, 400),
        ({"role": "AGENT"}, 400),
        ({"role": "agent", "agent_id": "a"}, 422),
        ({"role": "AGENT", "agent_id": "a b"}, 422),
        ({"role": "AGENT", "agent_id": "a", "sha256": "0" * 64}, 422),
        ([], 422),
    ],
)
async def test_an_admin_makes_tokens_of_its_own_workspace_and_never_an_owners(
    stack: Stack, asked: object, status: int
) -> None:
    admin = await stack.token(Role.ADMIN, "acme")
    async with stack.http(admin.plaintext) as http:
        answer = await http.post("/v1/admin/tokens", json=asked)
        assert answer.status_code == status, answer.text
        if status == 201:
            assert answer.json()["workspace_id"] == "acme"


async def test_only_an_owner_of_all_makes_another_and_it_is_recorded_in_the_system_workspace(stack: Stack) -> None:
    async with stack.http() as http:
        made = await http.post("/v1/admin/tokens", json={"role": "OWNER", "all_workspaces": True})
        assert made.status_code == 201
        assert made.json()["workspace_id"] is None
        refused = await http.post("/v1/admin/tokens", json={"role": "ADMIN", "all_workspaces": True})
        assert refused.status_code == 400
    kept = stack.store.rows(
        "SELECT workspace_id FROM journal_entries WHERE payload LIKE ?", [f"%{made.json()['token_id']}%"]
    )
    assert kept == [("_system",)]
    async with stack.http(made.json()["token"]) as other:
        assert (await other.get("/v1/admin/broker")).status_code == 200


async def test_an_admin_neither_sees_nor_revokes_tokens_of_others(stack: Stack) -> None:
    admin = await stack.token(Role.ADMIN, "acme")
    foreign = await stack.token(Role.AGENT, "globex", agent="gus")
    owner = await stack.token(Role.OWNER, "acme")
    async with stack.http(admin.plaintext) as http:
        shown = {token["token_id"] for token in (await http.get("/v1/admin/tokens")).json()["tokens"]}
        assert foreign.info.token_id not in shown
        assert owner.info.token_id in shown
        assert (await http.delete(f"/v1/admin/tokens/{foreign.info.token_id}")).status_code == 404
        assert (await http.delete(f"/v1/admin/tokens/{owner.info.token_id}")).status_code == 403
        assert (await http.delete("/v1/admin/tokens/owner")).status_code == 404
    async with stack.http() as http:
        assert (await http.delete("/v1/admin/tokens/owner")).status_code == 403
    assert stack.tokens.authenticate(foreign.plaintext).workspace_id == "globex"


async def test_long_operations_tell_how_far_they_are_and_end_with_a_result_or_a_problem(stack: Stack) -> None:
    async with stack.http() as http:
        rebuilt = await http.post("/v1/admin/rebuild", json={"projections": ["entries"]})
        assert rebuilt.headers["content-type"] == "application/x-ndjson"
        lines = [json.loads(line) for line in rebuilt.text.splitlines()]
        assert lines == [{"done": 1, "total": 2}, {"result": {"entries": 2}}]
        assert stack.node.asked[-1] == ("rebuild", ("entries",))
        await http.post("/v1/admin/rebuild")
        assert stack.node.asked[-1] == ("rebuild", None)
        stack.node.failing = True
        try:
            failed = await http.post("/v1/admin/rebuild")
        finally:
            stack.node.failing = False
        assert json.loads(failed.text.splitlines()[-1])["error"]["status"] == 404
        assert (await http.post("/v1/admin/rebuild", json={"projections": "entries"})).status_code == 422
    async with stack.client() as client:
        assert [record async for record in client.verify()][-1] == {"result": {"same": True}}
        stack.node.failing = True
        try:
            with pytest.raises(NotFound, match="no projection of that name"):
                _ = [record async for record in client.rebuild()]
        finally:
            stack.node.failing = False


async def test_a_long_operation_that_fails_in_a_way_nobody_foresaw_says_so_in_its_last_line(stack: Stack) -> None:
    stack.node.failing = RuntimeError("a secret of the inside")
    try:
        async with stack.http() as http:
            failed = await http.post("/v1/admin/rebuild")
        async with stack.client() as client:
            with pytest.raises(CrewJournalError, match="it is in the log"):
                _ = [record async for record in client.rebuild()]
    finally:
        stack.node.failing = False
    progress, last = (json.loads(line) for line in failed.text.splitlines())
    assert progress == {"done": 1, "total": 2}
    assert last["error"]["status"] == 500
    assert last["error"]["trace_id"] in last["error"]["hint"]
    assert "secret" not in failed.text


async def test_dead_letters_are_bound_to_the_tokens_workspace(stack: Stack) -> None:
    stack.node.letters = [
        DeadLetter(projection="entries", version=1, seq=seq, subject=f"journal.{name}.c.a.x", reason="broken",
                   parked_ms=1, state="parked", workspace_id=name)
        for seq, name in ((3, "acme"), (5, "globex"))
    ]  # fmt: skip
    admin = await stack.token(Role.ADMIN, "acme")
    async with stack.client(admin.plaintext) as client:
        assert [letter.seq for letter in (await client.dead_letters(state="parked")).dead_letters] == [3]
        with pytest.raises(RefusedByOneView, match="only entries could not fold 3"):
            await client.retry_dead_letter(3)
        assert (await client.retry_dead_letter(3, force=True)).new_seq == 4
        with pytest.raises(NotFound):
            await client.retry_dead_letter(5)
        with pytest.raises(NotFound):
            await client.discard_dead_letter(5, reason="not mine")
        with pytest.raises(NotAllowed):
            await client.discard_dead_letter(5, workspace_id="globex")
    async with stack.client() as client:
        assert {letter.seq for letter in (await client.dead_letters()).dead_letters} == {3, 5}
        assert (await client.discard_dead_letter(5, reason="known", workspace_id="globex")).state == "discarded"
        assert stack.node.asked[-1] == ("discard", "known")
    async with stack.http() as http:
        assert (await http.get("/v1/admin/dlq", params={"state": "lost"})).status_code == 400
        assert (await http.post("/v1/admin/dlq/0/retry")).status_code == 422
        assert (await http.post("/v1/admin/dlq/3/forget")).status_code == 404


async def test_activating_a_model_is_bound_to_the_tokens_workspace(stack: Stack) -> None:
    admin = await stack.token(Role.ADMIN, "acme")
    async with stack.client(admin.plaintext) as client:
        await client.activate_model("mini")
        assert stack.node.asked[-1] == ("activate", ("acme", "mini", "", False))
        with pytest.raises(NotAllowed):
            await client.activate_model("mini", workspace_id="globex")
    async with stack.client() as client:
        await client.activate_model("mini", reason="faster", force=True)
        assert stack.node.asked[-1] == ("activate", (None, "mini", "faster", True))


def test_the_owners_token_is_minted_once_and_is_private(tmp_path: Path) -> None:
    first = ensure_owner_token(tmp_path / "data")
    assert ensure_owner_token(tmp_path / "data") == first
    file = tmp_path / "data" / "admin.token"
    assert file.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in file.parent.iterdir()) == [".gitignore", "admin.token"]
    assert ensure_owner_token(tmp_path / "other") != first
    file.chmod(0o644)
    with pytest.raises(NotAllowed, match="can be read by others"):
        ensure_owner_token(tmp_path / "data")
    file.chmod(0o600)
    for content in (b"not a token", b"\xff\xfe\x00"):
        file.write_bytes(content)
        with pytest.raises(NotAllowed, match="holds no token"):
            ensure_owner_token(tmp_path / "data")
    file.unlink()
    file.mkdir()
    with pytest.raises(NotAllowed, match="is not a file"):
        ensure_owner_token(tmp_path / "data")


def test_an_invalid_name_of_a_node_is_replaced(tmp_path: Path) -> None:
    first = node_id(tmp_path)
    assert node_id(tmp_path) == first
    for content in (b"", b"\xff\xfe\x00", b"two words"):
        (tmp_path / "node.id").write_bytes(content)
        anew = node_id(tmp_path)
        assert anew != first
        assert node_id(tmp_path) == anew

"""A person's data on a real node: exported whole or not at all, erased with a receipt, and not learned again.

The five rules of contract §19 are the tests ``test_gdpr_…``.
"""

from __future__ import annotations

import asyncio
import json
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.cli import COMMAND, environment
from support.persons import DEADLINE_S, POLL_S, World, world_in

from crew_journal.schemas.core.errors import BrokerUnavailable
from crew_journal.schemas.erasure.events import PersonExported
from crew_journal.services.erasure.use_cases import Erasures
from crew_journal.services.node import Node
from crew_journal.services.operators.use_cases import Operators
from crew_journal.services.runtime.erasing import ErasedStream

ALICE, NEIGHBOUR = "alice@x", "alice.b@x"
CANARY, OTHER = "quetzalcoatlus", "lanternfish"


async def plant(world: World, person: str, text: str) -> str:
    """Messages of a person in every family that can hold them; the id of the first."""
    slug = await world.consent(person, "granted")
    note = await world.entry(summary=f"the badge word is {text}", data_subject_id=person)
    await world.entry(
        entry_type="chat.user_message", summary=f"I say {text}", actor_type="user", actor_id=person, trace_id="s1"
    )
    await world.entry(entry_type="summary.generated", summary=f"badge: {text}", refs={"derived_from": [note]})
    write: dict[str, Any] = {"agent_id": "a1", "crew_id": "c1", "mode": "append"}
    await world.post("/memory/write", tier="AGENT", content=f"- {text} opens the door", derived_from=[note], **write)
    await world.post(
        "/memory/write", tier="daily", key="2026-05-01", content=f"- met {text}", data_subject_id=person, **write
    )
    await world.post("/memory/write", tier="peers", key=slug, content=f"- likes {text}", **write)
    await world.post("/v1/kg/facts", subject=text, predicate="badge", object=text, source_entry_id=note)
    await world.profile(person, text, note)
    return note


async def test_export_holds_every_message_of_the_person_and_none_of_the_neighbour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world_in(tmp_path, monkeypatch) as world:
        note = await plant(world, ALICE, CANARY)
        await plant(world, NEIGHBOUR, OTHER)
        await world.post(
            "/v1/recall", query="badge word", k=5, workspace_id="default", min_seq=max(await world.stored())
        )
        async with asyncio.timeout(DEADLINE_S):
            while not await world.audit("memory.searched"):  # noqa: ASYNC110  # it is recorded after the answer
                await asyncio.sleep(POLL_S)
        planted, neighbours = await world.holding(CANARY), await world.holding(OTHER)
        await world.post("/v1/operator/name", user=ALICE, name="Alice Liddell")
        await world.entry(summary="under her other name", data_subject_id="alice  LIDDELL")
        exported = await world.post("/v1/admin/export", subject=ALICE, reason="asked by Alice")

        held = {message["seq"]: message for message in exported["messages"]}
        searched = {seq for seq, (kind, _) in (await world.stored()).items() if kind == "memory.searched"}
        assert len(planted) >= 8
        assert planted <= set(held)
        assert not set(held) & neighbours
        assert "under her other name" in json.dumps(exported)
        assert OTHER not in json.dumps(exported)
        assert set(exported["counts"]) >= {"entries", "documents", "facts", "operators", "access"}
        assert sum(exported["counts"].values()) == len(held)
        assert held[min(held)]["bears"]
        assert not next(m for m in held.values() if m["what"] == "summary.generated")["bears"]
        assert {receipt["seq"] for receipt in exported["given"]} == searched
        assert note in exported["given"][0]["ids"]
        assert exported["not_included"]
        assert [row["state"] for row in await world.audit(PersonExported.ENTRY_TYPE)] == ["requested", "completed"]


async def test_export_over_the_command_line_writes_one_archive_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world_in(tmp_path / "data", monkeypatch) as world:
        await plant(world, ALICE, CANARY)
        where = ["--url", world.runtime.http_url, "--token", world.runtime.owner_token]
        asked = ["export", str(tmp_path / "out"), "--subject", ALICE, *where]

        async def run(*options: str) -> int:
            command = await asyncio.create_subprocess_exec(COMMAND, *asked, *options, env=environment())
            return await command.wait()

        assert await run() == 2
        assert await run("--reason", "asked by Alice") == 0
        assert await run("--reason", "again") == 2, "an archive is not overwritten"
        unknown = ["export", str(tmp_path / "none"), "--subject", "nobody-known", *where, "--reason", "asked"]
        command = await asyncio.create_subprocess_exec(
            COMMAND, *unknown, env=environment(), stderr=asyncio.subprocess.PIPE
        )
        _, err = await command.communicate()
        assert command.returncode == 4
        assert b"the journal has nothing of nobody-known, so no file was written" in err
        assert not (tmp_path / "none").exists()
        command = await asyncio.create_subprocess_exec(
            *(COMMAND, "forget", "--subject", ALICE, *where),
            env=environment(),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await command.communicate()
        rows = out.decode().splitlines()
        assert err == b"", "a dry run is one text"
        assert rows.index("by family") < rows.index("by store") < rows.index("for example")
        assert rows[-1] == "nothing was changed; add --yes to erase"
        path = tmp_path / "out" / "person.zip"
        assert path.stat().st_mode & 0o777 == 0o600
        with zipfile.ZipFile(path) as archive:
            manifest = json.loads(archive.read("manifest.json"))
            lines = archive.read("messages.jsonl").decode().splitlines()
        assert manifest["files"]["messages.jsonl"] == len(lines) == sum(manifest["counts"].values())
        assert CANARY in manifest["model"]["facts"][0]["value"]


async def test_erased_person_leaves_no_trace_and_stays_opted_out_and_the_neighbour_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world_in(tmp_path, monkeypatch) as world:
        await plant(world, ALICE, CANARY)
        note = await plant(world, NEIGHBOUR, OTHER)
        await world.post("/v1/operator/name", user=ALICE, name="Alice Liddell")
        await world.consent(ALICE, "withdrawn")
        before = await world.holding(OTHER)
        receipt = await world.erased(ALICE)
        assert receipt["counts"]["stream"] >= 8
        found = await world.post("/v1/admin/prove", canary=CANARY)
        assert (found["files"], found["views"]) == ({}, {})
        for name in (ALICE, "Alice Liddell"):
            shown = (await world.http.get("/v1/operator", params={"user": name})).json()
            assert (shown["opted_out"], shown["model"], shown["cards"]) == (True, None, [])
        await world.profile(ALICE, "short answers", note)  # a sweep that began before
        assert (await world.http.get("/v1/operator", params={"user": ALICE})).json()["model"] is None
        assert await world.holding(OTHER) == before
        neighbour = (await world.http.get("/v1/operator", params={"user": NEIGHBOUR})).json()
        assert neighbour["model"]["facts"][0]["value"] == OTHER
        assert neighbour["consent"] == "granted"
        verified = await world.http.post("/v1/admin/verify")
        assert '"equal": true' in verified.text.replace('":true', '": true')


async def test_gdpr_who_may_and_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world_in(tmp_path, monkeypatch) as world:
        await plant(world, ALICE, CANARY)
        made: tuple[tuple[str, str, dict[str, Any]], ...] = (
            ("AGENT", "default", {"agent_id": "a1"}),
            ("LEAD", "default", {"agent_id": "a2", "crew_id": "c1"}),
            ("ADMIN", "acme", {}),
        )
        tokens = {
            role: (await world.post("/v1/admin/tokens", role=role, workspace_id=where, **bound))["token"]
            for role, where, bound in made
        }
        stored = await world.stored()
        for path in ("/v1/admin/export", "/v1/admin/forget"):
            for role, token in tokens.items():
                asked = {"subject": ALICE, "reason": "r", "workspace_id": "default"}
                headers = {"authorization": f"Bearer {token}"}
                answer = await world.http.post(path, json=asked, headers=headers)
                assert answer.status_code == httpx.codes.FORBIDDEN, role
            for reason in ({}, {"reason": ""}, {"reason": " \t"}, {"reason": None}):
                answer = await world.http.post(path, json={"subject": ALICE, **reason})
                assert answer.status_code == httpx.codes.BAD_REQUEST, reason
                assert "reason" in answer.text
        assert await world.stored() == stored, "nothing was read, recorded or erased"
        headers = {"authorization": f"Bearer {tokens['ADMIN']}"}
        elsewhere = await world.http.post("/v1/admin/export", json={"subject": ALICE, "reason": "r"}, headers=headers)
        assert (elsewhere.json()["workspace_id"], elsewhere.json()["messages"]) == ("acme", [])


async def test_gdpr_nothing_happens_before_the_request_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(*_given: Any, **_named: Any) -> None:
        raise BrokerUnavailable("no ack")

    async with world_in(tmp_path, monkeypatch) as world:
        await plant(world, ALICE, CANARY)
        stored = await world.stored()
        with monkeypatch.context() as patch:
            patch.setattr(Node, "decide", unavailable)
            for path in ("/v1/admin/export", "/v1/admin/forget"):
                answer = await world.http.post(path, json={"subject": ALICE, "reason": "r"})
                assert answer.status_code == httpx.codes.SERVICE_UNAVAILABLE
                assert CANARY not in answer.text
        assert await world.stored() == stored
        assert (await world.http.get("/v1/operator", params={"user": ALICE})).json()["model"] is not None


async def test_gdpr_partial_failure_answers_207_with_the_store_and_a_repetition_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_given: Any, **_named: Any) -> int:
        raise RuntimeError("the store is broken")

    async def undecided(*_given: Any) -> dict[str, str]:
        return {"operators": "no ack"}

    async with world_in(tmp_path, monkeypatch) as world:
        await plant(world, ALICE, CANARY)
        with monkeypatch.context() as patch:
            patch.setattr(ErasedStream, "letters", broken)
            patch.setattr(Erasures, "_delete_model", undecided)
            begun = await world.post("/v1/admin/forget", 207, subject=ALICE, reason="r")
            assert begun["failed"] == {"operators": "no ack"}
            failed = await world.completed(begun["erasure_id"])
            assert failed["status"] == httpx.codes.MULTI_STATUS
            assert list(failed["failed"]) == ["dead letters"]
            assert failed["state"] == "scoped"
        again = await world.erased(ALICE)
        assert again["counts"]["stream"] == 0
        first = await world.completed(begun["erasure_id"])
        assert (first["state"], first["status"], first["failed"]) == ("completed", httpx.codes.OK, {})
        found = await world.post("/v1/admin/prove", canary=CANARY)
        assert (found["files"], found["views"]) == ({}, {})


@pytest.mark.parametrize("opted_out", [False, True])
async def test_gdpr_repeated_runs_add_records_and_delete_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, opted_out: bool
) -> None:
    async with world_in(tmp_path, monkeypatch) as world:
        await plant(world, ALICE, CANARY)
        if opted_out:
            await world.consent(ALICE, "withdrawn")
        assert (await world.erased(ALICE))["counts"]["stream"] > 0
        for _ in range(2):
            assert (await world.erased(ALICE))["counts"]["stream"] == 0
        assert (await world.erased("nobody@x"))["counts"]["stream"] == 0
        assert len(await world.audit("erasure.requested")) == len(await world.audit("erasure.completed")) == 4
        planned = await world.post("/v1/admin/forget", 200, subject=ALICE, reason="r", dry_run=True)
        assert planned["messages"] == 0
        assert (await world.http.get("/v1/operators")).json()["operators"] == []


async def test_gdpr_export_that_cannot_read_a_store_fails_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_given: Any) -> None:
        raise RuntimeError("the view is broken")

    def lost(_self: ErasedStream) -> str:
        return "the journal lacks 7"

    async with world_in(tmp_path, monkeypatch) as world:
        await plant(world, ALICE, CANARY)
        for where, name, fault, status in (
            (Operators, "show", broken, httpx.codes.SERVICE_UNAVAILABLE),
            (Erasures, "scope_of", broken, httpx.codes.SERVICE_UNAVAILABLE),
            (ErasedStream, "loss", lost, httpx.codes.CONFLICT),
        ):
            with monkeypatch.context() as patch:
                patch.setattr(where, name, fault)
                answer = await world.http.post("/v1/admin/export", json={"subject": ALICE, "reason": "r"})
                assert answer.status_code == status
                assert CANARY not in answer.text
        rows = await world.audit(PersonExported.ENTRY_TYPE)
        assert [row["state"] for row in rows] == ["requested", "failed"] * 3
        assert all(row["error"] for row in rows[1::2])

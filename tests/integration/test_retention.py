"""Retention on a real node: what is past it is erased with a receipt; what is pinned or not past it stays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.cli import COMMAND, environment
from support.persons import DEADLINE_S, POLL_S, World, world_in

from crew_journal.schemas.core.timestamps import DAY_MS, to_ms
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.erasure import retention
from crew_journal.services.erasure.retention import Retention
from crew_journal.services.erasure.use_cases import Erasures


def at(world: World, days: float) -> Retention:
    """The nightly run of a node whose clock is ``days`` ahead."""
    node = replace(world.node, clock=lambda: datetime.now(UTC) + timedelta(days=days))
    node.put(Erasures, world.erasures)
    return Retention(node)


async def configure(world: World, workspace: str = "default", **settings: Any) -> dict[str, Any]:
    answer = await world.http.put("/v1/memory/config", json={"workspace_id": workspace, **settings})
    assert answer.is_success, answer.text
    return dict(answer.json())


async def erasures(world: World, workspace: str = "default") -> list[dict[str, Any]]:
    """The erasures of a workspace, once all are completed."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            answer = await world.http.get("/v1/admin/erasures", params={"workspace_id": workspace})
            found = list(answer.json()["erasures"]) if answer.is_success else [{"state": "away"}]
            if all(erasure["state"] == "completed" for erasure in found):
                return found
            await asyncio.sleep(POLL_S)


async def listed(world: World, workspace: str = "default") -> set[str]:
    """Summaries of the entries that agents published."""
    seq = max(await world.stored())
    params: dict[str, str | int] = {"workspace_id": workspace, "min_seq": seq, "limit": 500, "include_archive": "true"}
    answer = await world.http.get("/v1/journal", params=params)
    return {entry["summary"] for entry in answer.json()["entries"] if entry["agent_id"] == "a1"}


@asynccontextmanager
async def filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[World, dict[str, str]]]:
    async with world_in(tmp_path, monkeypatch) as world:
        ids = {}
        for entry_type in ("chat.user_message", "chat.agent_message", "exec.command", "memory.remembered"):
            ids[entry_type] = await world.entry(entry_type=entry_type, summary=f"text of {entry_type}")
        await world.entry(
            entry_type="summary.generated", summary="made of chat", refs={"derived_from": [ids["chat.user_message"]]}
        )
        yield world, ids


async def test_retention_by_type_erases_the_most_specific_rules_types_with_all_that_was_made_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with filled(tmp_path, monkeypatch) as (world, _):
        await world.entry(workspace_id="other", entry_type="chat.user_message", summary="of another workspace")
        await configure(world, retention={"*": 100, "chat.*": 30, "chat.agent_message": 60})
        for days, gone in (
            (29, set()),
            (31, {"text of chat.user_message", "made of chat"}),
            (61, {"text of chat.agent_message"}),
            (101, {"text of exec.command", "text of memory.remembered"}),
        ):
            before, known = await listed(world), len(await erasures(world))
            await at(world, days).erase_due()
            done = await erasures(world)
            assert before - await listed(world) == gone, days
            assert len(done) == known + bool(gone)
            if gone:
                assert done[0]["reason"].startswith("retention of 20")
                assert done[0]["counts"]["stream"] >= len(gone)
                assert done[0]["not_proven"]
        assert await listed(world, "other") == {"of another workspace"}
        assert await erasures(world, "other") == []
        verified = await world.http.post("/v1/admin/verify")
        assert '"equal": true' in verified.text.replace('":true', '": true')


async def test_retention_leaves_what_is_pinned_or_permanent_and_what_that_was_made_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with filled(tmp_path, monkeypatch) as (world, ids):
        base = await world.entry(entry_type="chat.user_message", summary="evidence")
        middle = await world.entry(entry_type="chat.user_message", summary="step", refs={"derived_from": [base]})
        kept = await world.entry(entry_type="chat.user_message", summary="kept", refs={"derived_from": [middle]})
        await world.node.shows(max(await world.stored()))
        for entry_id, priority in (
            (kept, "permanent"),
            (ids["exec.command"], "pin"),
            (ids["chat.user_message"], "high"),
        ):
            await world.post(f"/v1/journal/{entry_id}/priority", priority=priority, reason="r")
        await configure(world, retention={"*": 1})
        planned = await world.post("/v1/memory/retention", 200, dry_run=True)
        assert planned["past"] == {}
        await at(world, 2).erase_due()
        [done] = await erasures(world)
        assert done["reason"].endswith(": * 1 d")
        assert await listed(world) == {"evidence", "step", "kept", "text of exec.command"}


async def test_retention_by_tier_erases_documents_not_written_for_so_long_but_not_pins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world_in(tmp_path, monkeypatch) as world:
        write: dict[str, Any] = {"agent_id": "a1", "crew_id": "c1", "mode": "append"}
        for tier, key in (("daily", "2026-05-01"), ("daily", "2026-05-02"), ("AGENT", None), ("pins", None)):
            await world.post("/memory/write", tier=tier, key=key, content=f"- {tier} {key}", **write)
        await configure(world, retention={"tier:daily": 30, "tier:*": 90, "*": 200})

        async def documents() -> set[str]:
            figures = (await world.http.get("/v1/memory/stats", params={"min_seq": max(await world.stored())})).json()
            return {tier["tier"] for tier in figures["tiers"]}

        for days, left in ((29, {"daily", "AGENT", "pins"}), (31, {"AGENT", "pins"}), (91, {"pins"}), (300, {"pins"})):
            await at(world, days).erase_due()
            await erasures(world)
            assert await documents() == left, days
        refused = await world.http.put("/v1/memory/config", json={"retention": {"tier:pins": 1}})
        assert refused.status_code == 422


async def test_superseded_versions_past_retention_days_are_erased_and_what_was_restored_from_them_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner: dict[str, Any] = {"agent_id": "a1", "crew_id": "c1"}
    log: dict[str, Any] = {"tier": "daily", "key": "2026-05-01", **owner}
    async with world_in(tmp_path, monkeypatch) as world:
        for text in ("first quetzal", "second"):
            await world.post("/memory/write", mode="replace", tier="AGENT", content=text, **owner)
        for text in ("old lantern", "new"):
            await world.post("/memory/write", mode="replace", content=text, **log)
        params: dict[str, Any] = {**log, "min_seq": max(await world.stored())}
        versions = (await world.http.get("/v1/memory/document/versions", params=params)).json()["versions"]
        await world.post("/v1/memory/document/restore", version=min(version["seq"] for version in versions), **log)
        await configure(world, retention_days=10)
        ahead = at(world, 11)
        await ahead._administration.sweep_due()
        await world.node.shows(max(await world.stored()))
        await ahead.erase_due()
        [done] = await erasures(world)
        assert done["reason"].endswith(": versions 10 d")
        assert await world.holding("first quetzal") == set()
        params["min_seq"] = max(await world.stored())
        document = await world.http.get("/v1/memory/document", params=params)
        assert document.json()["content"].strip() == "old lantern"


async def test_retention_run_is_bounded_and_counts_what_is_left_and_a_night_has_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MOST_AT_ONCE", 2)
    async with filled(tmp_path, monkeypatch) as (world, _):
        await configure(world, retention={"chat.*": 1, "exec.*": 1})
        far = at(world, 2)
        await far.erase_due()
        assert len(await erasures(world)) == 1
        await far.erase_due()
        await at(world, 2).erase_due()  # another node
        assert len(await erasures(world)) == 1
        assert await listed(world) == {"text of exec.command", "text of memory.remembered"}
        planned = await world.post("/v1/memory/retention", 200, dry_run=True)
        assert (planned["past"], planned["erasure"]) == ({}, None)
        await at(world, 3).erase_due()
        assert await listed(world) == {"text of memory.remembered"} or await erasures(world)


async def test_retention_dry_run_changes_nothing_and_says_what_would_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with filled(tmp_path, monkeypatch) as (world, _):
        await configure(world, retention={"chat.*": 1})
        monkeypatch.setattr(retention, "to_ms", lambda now: to_ms(now) + 2 * DAY_MS)
        stored = await world.stored()
        planned = await world.post("/v1/memory/retention", 200, dry_run=True)
        assert planned["past"] == {"chat.* 1 d": 2}
        assert planned["erasure"]["by_type"]["summary.generated"] == 1
        assert await world.stored() == stored
        done = await world.post("/v1/memory/retention", 202)
        assert done["erasure"]["erasure_id"]
        assert len(await erasures(world)) == 1


async def test_null_unsets_a_retention_over_http_client_and_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world_in(tmp_path / "data", monkeypatch) as world:
        given: dict[str, Any] = {"retention": {"chat.*": 30}, "retention_days": 5}

        async def command(*options: str) -> int:
            where = ["--url", world.runtime.http_url, "--token", world.runtime.owner_token]
            made = await asyncio.create_subprocess_exec(COMMAND, *options, *where, env=environment())
            return await made.wait()

        client = AsyncCrewJournal(world.runtime.http_url, world.runtime.owner_token)
        for name in given:
            for unset in ("http", "client", "command"):
                await configure(world, **given)
                nothing: dict[str, Any] = {name: None}
                if unset == "http":
                    answer = await configure(world, **nothing)
                elif unset == "client":
                    answer = (await client.configure_memory(**nothing)).model_dump()
                else:
                    assert await command("memory", "configure", "--reset", name) == 0
                    answer = (await client.memory_config()).model_dump()
                assert answer[name] is None, (name, unset)
                (other,) = set(given) - {name}
                assert answer[other] == given[other], (name, unset)
            await configure(world, **given)
            answer = await configure(world, scrubber="warn")
            assert {key: answer[key] for key in given} == given, "an absent setting stays"
            kept = await client.configure_memory(scrubber="block")
            assert (kept.retention, kept.retention_days) == tuple(given.values())
        await client.close()

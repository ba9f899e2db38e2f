"""What OWNER and ADMIN decide and see of a workspace's memory documents: settings, figures, sweeps of versions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.stack import DEADLINE_S, Stack, running_stack

from crew_journal.schemas.core.errors import InvalidEntry, NotAllowed, VersionGone, WriteRefused
from crew_journal.schemas.core.principal import Role
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.documents.use_cases import Administration
from crew_journal.services.journal.broker.streams import stream_head

SECRET = "AKIA" + "ABCDEFGHIJKLMNOP"


@dataclass
class World:
    stack: Stack
    owner: AsyncCrewJournal
    lead: AsyncCrewJournal
    ada: AsyncCrewJournal

    def node(self, now: datetime) -> Administration:
        """What a node keeps of the daily sweep, at a time."""
        return Administration(replace(self.stack.shared, clock=lambda: now))

    async def swept(self) -> list[dict[str, Any]]:
        head = await stream_head(self.stack.client_of_broker)
        await self.stack.store.wait_for(head, DEADLINE_S)
        listed = await self.owner.list(types=["memory.versions_swept"], min_seq=head)
        return [dict(entry.payload) for entry in reversed(listed.entries)]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running_stack(tmp_path) as stack:

        async def client(role: Role, agent: str | None = None, crew: str | None = None) -> AsyncCrewJournal:
            return stack.client((await stack.token(role, "acme", agent=agent, crew=crew)).plaintext)

        clients = [
            await client(Role.OWNER),
            await client(Role.LEAD, "lena", "core"),
            await client(Role.AGENT, "ada", "core"),
        ]
        try:
            yield World(stack, *clients)
        finally:
            for one in clients:
                await one.close()


async def test_settings_are_the_defaults_until_they_are_set_and_count_from_then_on(world: World) -> None:
    before = await world.owner.memory_config()
    assert (before.retention_days, before.scrubber, before.verifier) == (None, "redact", "off")
    await world.ada.document_write("AGENT", "append", SECRET)
    assert "[redacted: " in (await world.ada.document_read("AGENT")).content
    await world.owner.configure_memory(retention_days=3_650, scrubber="block")
    await world.owner.configure_memory(verifier="cheap")
    with pytest.raises(WriteRefused):
        await world.ada.document_write("AGENT", "append", SECRET)
    config = await world.owner.memory_config()
    assert (config.retention_days, config.scrubber, config.verifier) == (3_650, "block", "cheap")
    reset = await world.owner.configure_memory(reset=["retention_days", "scrubber"])
    assert (reset.retention_days, reset.scrubber, reset.verifier) == (None, "redact", "cheap")


async def test_null_unsets_the_retention_and_leaves_the_other_settings(world: World) -> None:
    await world.owner.configure_memory(retention_days=30, scrubber="redact")
    async with world.stack.http((await world.stack.token(Role.ADMIN, "acme")).plaintext) as http:
        sent: list[tuple[dict[str, Any], int | None, str]] = [
            ({"scrubber": None, "verifier": "cheap"}, 30, "null elsewhere means that the field is absent"),
            ({"retention_days": None}, None, "versions are kept"),
        ]
        for body, days, why in sent:
            answer = (await http.put("/v1/memory/config", json=body)).json()
            assert (answer["retention_days"], answer["scrubber"], answer["verifier"]) == (days, "redact", "cheap"), why
    assert (await world.owner.memory_config()).retention_days is None


async def test_settings_out_of_bounds_and_those_who_may_not_set_them_are_refused(world: World) -> None:
    for days in (0, 3_651):
        with pytest.raises(InvalidEntry, match="retention_days"):
            await world.owner.configure_memory(retention_days=days)
    with pytest.raises(InvalidEntry, match="scrubber"):
        await world.owner.configure_memory(scrubber="maybe")  # type: ignore[arg-type]  # what the service refuses
    for attempt in (world.lead.configure_memory, world.lead.memory_config, world.ada.memory_stats):
        with pytest.raises(NotAllowed):
            await attempt()
    with pytest.raises(NotAllowed):
        await world.ada.sweep_versions(older_than_days=1)
    with pytest.raises(InvalidEntry, match="older_than_days"):
        await world.owner.sweep_versions()
    async with world.stack.http(world.stack.owner) as http:
        assert (await http.get("/v1/memory/config", params={"workspace_id": "acne"})).status_code == 404


async def test_figures_count_documents_versions_and_bytes_by_owner_and_tier(world: World) -> None:
    await world.ada.document_write("AGENT", "replace", "äb")
    await world.ada.document_write("AGENT", "append", "c")
    await world.ada.document_write("peers", "replace", "gone", key="eva")
    await world.ada.document_retract("peers", key="eva")
    await world.lead.document_write("CREW", "replace", "ours")
    stats = await world.owner.memory_stats()
    shown = {(tier.owner, tier.tier): tier for tier in stats.tiers}
    assert set(shown) == {("a-ada", "AGENT"), ("a-ada", "peers"), ("c-core", "CREW")}
    agent, peers = shown["a-ada", "AGENT"], shown["a-ada", "peers"]
    assert (agent.documents, agent.bytes, agent.versions, agent.version_bytes) == (1, 6, 2, 4)
    assert (peers.documents, peers.retracted, peers.bytes, peers.versions) == (0, 1, 0, 2)
    assert (stats.documents, stats.bytes, stats.versions) == (2, 10, 5)


async def test_a_sweep_keeps_every_piece_that_a_kept_version_needs(world: World) -> None:
    old = await world.ada.document_write("AGENT", "replace", "first text")
    await world.ada.document_write("AGENT", "replace", "base")
    first = await world.ada.document_write("AGENT", "append", "one")
    far = world.node(datetime.now(UTC) + timedelta(days=40))
    await world.owner.configure_memory(retention_days=30)
    await far.sweep_due()
    [swept] = await world.swept()
    assert (swept["count"], swept["keep_latest"]) == (1, 0)
    with pytest.raises(VersionGone):
        await world.ada.document_read("AGENT", version=old.seq)
    assert (await world.ada.document_read("AGENT", version=first.seq)).content == "base\none\n"
    later = await world.ada.document_write("AGENT", "append", "two")
    assert (await world.ada.document_read("AGENT", version=later.seq)).content == "base\none\ntwo\n"
    listed = await world.ada.document_versions("AGENT")
    assert [version.gone for version in listed.versions] == [False, False, False, True]
    assert [tier.swept for tier in (await world.owner.memory_stats()).tiers] == [1]


async def test_the_daily_sweep_is_recorded_once_a_day_and_only_where_a_retention_is_set(world: World) -> None:
    await world.ada.document_write("AGENT", "replace", "text")
    morning = datetime(2030, 5, 14, 6, 0, tzinfo=UTC)
    await world.node(morning).sweep_due()
    assert await world.swept() == []
    await world.owner.configure_memory(retention_days=1)
    node = world.node(morning)
    await node.sweep_due()
    await node.sweep_due()
    assert len(await world.swept()) == 1
    await world.node(morning + timedelta(hours=1)).sweep_due()
    assert len(await world.swept()) == 1, "another node, or one that was restarted, sweeps no second time"
    await world.node(morning + timedelta(days=1)).sweep_due()
    days = [datetime.fromtimestamp(one["cutoff_ms"] / 1_000, UTC).isoformat() for one in await world.swept()]
    assert days == ["2030-05-13T04:15:00+00:00", "2030-05-14T04:15:00+00:00"]


async def test_a_sweep_by_hand_keeps_the_newest_versions(world: World) -> None:
    for n in range(5):
        await world.ada.document_write("AGENT", "replace", f"text {n}")
    swept = await world.owner.sweep_versions(older_than_days=1)
    assert (swept.swept, swept.keep_latest) == (0, 3)
    listed = await world.ada.document_versions("AGENT")
    assert [version.gone for version in listed.versions] == [False] * 5

"""A journal whose files were damaged says so before it gives an answer that lacks something, and its advice restores it."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from support.damages import BLOCKS, STREAM_DAMAGES, VIEWS, VIEWS_DAMAGES, Damage, blocks, spoil_long_text, wal
from support.running import running_node

from crew_journal.consumers.host import host as tidying
from crew_journal.schemas.core.errors import JournalDamaged, VerificationFailed
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.runtime.node import Runtime

COUNT = 80
BODY_BYTES = 115_000
"""Random bytes of an entry, in hex: 80 of them fill two block files of 8 MB, and part of another."""
Answers = dict[str, str]


@asynccontextmanager
async def node(data_dir: Path) -> AsyncIterator[tuple[Runtime, AsyncCrewJournal]]:
    async with (
        running_node(data_dir) as runtime,
        AsyncCrewJournal(runtime.http_url, runtime.owner_token) as client,
    ):
        yield runtime, client


@pytest.fixture(scope="module")
async def healthy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Answers]:
    """A data directory after a clean stop, one as a killed node leaves it, and what both answer."""
    stopped, killed = tmp_path_factory.mktemp("stopped"), tmp_path_factory.mktemp("killed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tidying, "IDLE_TIDY_S", 3_600)  # its checkpoint would remove the log while it is copied
        expected = await fill(stopped, killed)
    assert len(blocks(stopped)) >= BLOCKS
    assert wal(killed).stat().st_size
    assert not wal(stopped).exists()
    return stopped, killed, expected


async def fill(stopped: Path, killed: Path) -> Answers:
    """Append to a new journal in ``stopped`` and copy its files to ``killed`` while it runs."""
    async with node(stopped) as (runtime, client):
        for number in range(COUNT):
            entry = {
                "id": f"e{number}",
                "workspace_id": "acme",
                "entry_type": "run.completed",
                "summary": f"entry {number} of the journal",
                "payload": {"n": number, "text": "what happened"},
                "refs": {"of": [number], "body": os.urandom(BODY_BYTES).hex()},  # no words for the full text
                "priority": "high" if number % 10 == 0 else "normal",
                "trace_id": f"t{number % 7}",
            }
            appended = await client.append(entry)
        expected = await answers(runtime, appended.seq)
        assert len(expected) == COUNT
        shutil.copytree(stopped, killed, dirs_exist_ok=True)
    return expected


async def answers(runtime: Runtime, min_seq: int = 0) -> Answers:
    """Every appended entry that the node shows, with a hash of all that it shows of it but its place in the stream.

    A sweep may fall due while the node runs; its tick is no answer.
    """
    found: Answers = {}
    headers = {"Authorization": f"Bearer {runtime.owner_token}"}
    async with httpx.AsyncClient(base_url=runtime.http_url, headers=headers, timeout=60) as http:
        asked: dict[str, Any] = {
            "workspace_id": "acme",
            "entry_type": "run.completed",
            "limit": 500,
            "min_seq": min_seq,
        }
        first = await http.get("/v1/journal", params=asked)
        if first.status_code == 404:  # without any message the workspace is unknown
            return found
        page = orjson.loads(first.raise_for_status().content)
        assert page["next_cursor"] is None
        for entry in page["entries"]:
            del entry["seq"]
            found[entry["id"]] = hashlib.sha256(orjson.dumps(entry, option=orjson.OPT_SORT_KEYS)).hexdigest()
        asked["q"] = "happened"
        page = orjson.loads((await http.get("/v1/journal", params=asked)).raise_for_status().content)
        assert {entry["id"] for entry in page["entries"]} == found.keys()
    return found


async def readiness(runtime: Runtime) -> list[str]:
    async with httpx.AsyncClient(base_url=runtime.http_url, timeout=60) as http:
        return list((await http.get("/readyz")).json()["reasons"])


async def last(records: AsyncIterator[dict[str, Any]]) -> dict[str, Any]:
    return [record async for record in records][-1]["result"]


async def salvaged(client: AsyncCrewJournal) -> list[dict[str, Any]]:
    return [record["entry"] async for record in client.salvage() if "entry" in record]


def copied(source: Path, target: Path, damage: Damage) -> Path:
    shutil.copytree(source, target)
    damage.do(target)
    return target


async def follow_the_advice(tmp_path: Path, healthy: tuple[Path, Path, Answers], damage: Damage) -> dict[str, object]:
    """Start over damaged files, ask, verify, rebuild, and then do what the errors say; returns how it went."""
    base, _, expected = healthy
    data_dir = copied(base, tmp_path / "data", damage)
    noticed = "never"
    lost = 0
    async with node(data_dir) as (runtime, client):
        reasons, shown = await readiness(runtime), await answers(runtime)
        at_start = any(reason.startswith("JournalDamaged") for reason in reasons)
        assert shown == expected or at_start, "an answer lacks something and nothing says so"
        assert set(shown.items()) <= set(expected.items())
        noticed = "start" if at_start else noticed
        verified = await last(client.verify())
        journal = verified["journal"]
        if journal["missing"] or journal["known_entries"] or journal["views_kept"]:
            noticed = "verify" if noticed == "never" else noticed
            assert not verified["equal"]
            assert any(reason.startswith("JournalDamaged") for reason in await readiness(runtime))
            with pytest.raises(JournalDamaged) as refused:
                await last(client.rebuild())
            assert "salvage" in refused.value.hint
            with pytest.raises(JournalDamaged):
                await last(client.rebuild(["entries"]))
            assert await answers(runtime) == shown, "a refused rebuild changed what is shown"
            written = (await client.append({"workspace_id": "other", "entry_type": "note", "summary": "goes on"})).seq
            assert (await client.count(workspace_id="other", min_seq=written)).count == 1
            entries = await salvaged(client)
            lost = len(entries)
            done = await last(client.rebuild(accept_loss=True))
            assert await readiness(runtime) == []
            assert done.get("kept_as") is None or (data_dir / done["kept_as"]).exists()
            assert await salvaged(client) == entries, "what was salvaged can be salvaged again"
            for start in range(0, len(entries), 10):
                (*_, appended) = await client.append_batch(entries[start : start + 10])
            if entries:
                assert await answers(runtime, appended.seq) == expected
                assert await salvaged(client) == []
        else:
            assert noticed == "never"
            assert verified["equal"]
            await last(client.rebuild())
            assert await readiness(runtime) == []
        assert await answers(runtime) == expected
        assert (await last(client.verify()))["equal"]
    async with node(data_dir) as (runtime, client):
        assert await readiness(runtime) == []
        assert await answers(runtime) == expected
    return {"damage": damage.name, "noticed": noticed, "salvaged": lost}


BOUNDED = ("middle block flipped",)
"""Messages lost in the middle; ``make nightly`` goes through all damages."""


@pytest.mark.parametrize("damage", [one for one in STREAM_DAMAGES if one.name in BOUNDED], ids=str)
async def test_a_damaged_stream_is_noticed_and_what_the_views_knew_comes_back(
    tmp_path: Path, healthy: tuple[Path, Path, Answers], damage: Damage
) -> None:
    await follow_the_advice(tmp_path, healthy, damage)


@pytest.mark.nightly
@pytest.mark.parametrize("damage", STREAM_DAMAGES, ids=str)
async def test_every_damage_of_the_stream_is_noticed_and_what_the_views_knew_comes_back(
    tmp_path: Path, healthy: tuple[Path, Path, Answers], damage: Damage
) -> None:
    print("OUTCOME", await follow_the_advice(tmp_path, healthy, damage))


async def test_a_block_of_the_stream_gone_and_a_byte_of_the_views_changed_lose_only_what_both_have_lost(
    tmp_path: Path, healthy: tuple[Path, Path, Answers]
) -> None:
    base, _, expected = healthy

    lost: list[bytes] = []

    def both(data_dir: Path) -> None:
        block = blocks(data_dir)[1]
        lost.extend(re.findall(rb'"summary":"entry \d+ of', block.read_bytes()))
        block.unlink()
        spoil_long_text(data_dir / VIEWS, "journal_entries", "refs")

    data_dir = copied(base, tmp_path / "data", Damage("both", both))
    async with node(data_dir) as (runtime, client):
        reasons = await readiness(runtime)
        assert any(reason.startswith("JournalDamaged") and "also if these are damaged" in reason for reason in reasons)
        *records, done = [record async for record in client.salvage()]
        result = done["result"]
        entries = [record["entry"] for record in records if "entry" in record]
        assert len(entries) > 0
        assert len(entries) == result["entries"]
        assert len(entries) + result["unreadable"] == len(lost)
        assert result["damaged_files"]
        await last(client.rebuild(accept_loss=True))
        for start in range(0, len(entries), 10):
            (*_, appended) = await client.append_batch(entries[start : start + 10])
        shown = await answers(runtime, appended.seq)
        assert len(expected) - len(shown) == result["unreadable"]
        assert shown.items() <= expected.items()
        assert await readiness(runtime) == []
        assert (await last(client.verify()))["equal"]


async def rebuild_if_told_to(tmp_path: Path, healthy: tuple[Path, Path, Answers], damage: Damage) -> dict[str, object]:
    """Start over damaged views, ask, and rebuild where that is the advice; returns how it went."""
    stopped, killed, expected = healthy
    data_dir = copied(killed if "log" in damage.name else stopped, tmp_path / "data", damage)
    noticed = "changes no answer"
    async with node(data_dir) as (runtime, client):
        if aside := (await client.status())["views_put_aside"]:
            noticed = "start"
            assert "damaged" in aside["reason"]
            assert (data_dir / aside["name"]).exists()
        refused: httpx.HTTPStatusError | None = None
        try:
            assert await answers(runtime) == expected, "an answer lacks something"
        except httpx.HTTPStatusError as error:
            refused = error
        if refused is not None:
            noticed = "answer"
            assert refused.response.status_code == httpx.codes.SERVICE_UNAVAILABLE
            assert "crew-journal rebuild" in refused.response.json()["hint"]
            assert any("crew-journal rebuild" in reason for reason in await readiness(runtime))
            await last(client.rebuild())
        failed: VerificationFailed | None = None
        try:
            verified = await last(client.verify())
        except VerificationFailed as error:
            failed = error
        if failed is not None:
            noticed = "verify"
            assert "crew-journal rebuild" in failed.hint
            await last(client.rebuild())
            verified = await last(client.verify())
        assert verified["equal"]
        assert not verified["journal"]["missing"]
        assert await readiness(runtime) == []
        assert await answers(runtime) == expected
        assert await salvaged(client) == []
    async with node(data_dir) as (runtime, _):
        assert await readiness(runtime) == []
        assert await answers(runtime) == expected
    return {"damage": damage.name, "noticed": noticed}


BOUNDED_VIEWS = ("views flipped everywhere",)


@pytest.mark.parametrize("damage", [one for one in VIEWS_DAMAGES if one.name in BOUNDED_VIEWS], ids=str)
async def test_damaged_views_are_complete_or_the_error_says_what_to_do(
    tmp_path: Path, healthy: tuple[Path, Path, Answers], damage: Damage
) -> None:
    await rebuild_if_told_to(tmp_path, healthy, damage)


@pytest.mark.nightly
@pytest.mark.parametrize("damage", VIEWS_DAMAGES, ids=str)
async def test_views_after_every_damage_are_complete_or_the_error_says_what_to_do(
    tmp_path: Path, healthy: tuple[Path, Path, Answers], damage: Damage
) -> None:
    print("OUTCOME", await rebuild_if_told_to(tmp_path, healthy, damage))

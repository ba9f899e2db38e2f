"""Memory documents over HTTP: written, read, refused, undone, and kept apart."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.document_world import World, document_world
from support.stack import Stack, running_stack

from crew_journal.schemas.core.errors import (
    CapExceeded,
    DocumentConflict,
    EmptyContent,
    InvalidMode,
    InvalidTier,
    MissingKey,
    NotAllowed,
    NotFound,
    VersionGone,
    WriteIdTaken,
)
from crew_journal.schemas.documents.events import MemoryVersionsSwept
from crew_journal.services.journal.publishing import Writer


@pytest.fixture
async def world(stack: Stack) -> AsyncIterator[World]:
    async with document_world(stack) as made:
        yield made


async def test_what_is_written_can_be_read_at_once(world: World) -> None:
    empty = await world.agent.document_read("AGENT")
    assert (empty.content, empty.seq, empty.owner, empty.usage) == ("", 0, "a-ada", "0 of 4000 bytes, 0%")
    written = await world.agent.document_write("AGENT", "replace", "# Facts\n- the build takes 4 min")
    assert (written.id, written.bytes, written.cap_pct, written.warning) == ("AGENT.md", 31, 0, None)
    assert re.fullmatch(r"w_[0-9a-f]{32}", written.write_id)
    appended = await world.agent.document_write("AGENT", "append", "- the queue is called `night`")
    assert appended.seq > written.seq
    read = await world.agent.document_read("AGENT")
    assert read.content == "# Facts\n- the build takes 4 min\n- the queue is called `night`\n"
    assert (read.seq, read.bytes) == (appended.seq, len(read.content))


async def test_the_body_of_the_seed_is_enough(world: World) -> None:
    async with world.stack.http(world.agent_token) as http:
        answer = await http.post(
            "/memory/write", json={"tier": "AGENT", "key": "", "mode": "append", "content": "- tests run in CI"}
        )
        assert answer.status_code == 201, answer.text
        assert answer.json()["search_index_updated"] is True
        today = await http.post("/memory/write", json={"tier": "daily", "mode": "append", "content": "- it rained"})
    assert today.json()["key"] == datetime.now(UTC).date().isoformat()
    assert (await world.agent.document_read("daily")).content == "- it rained\n"


async def test_a_note_is_a_line_with_its_time_in_the_log_of_today(world: World) -> None:
    noted = await world.agent.append_daily("deployed\nto staging", write_id="n1")
    again = await world.agent.append_daily("deployed to staging", write_id="n1")
    assert (again.seq, again.duplicate) == (noted.seq, True)
    content = (await world.agent.document_read("daily", key=noted.key)).content
    assert re.fullmatch(r"- \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ — deployed to staging\n", content)
    with pytest.raises(NotAllowed, match="LEAD"):
        await world.agent.append_daily("we deployed", scope="crew")
    assert (await world.lead.append_daily("we deployed", scope="crew")).owner == "c-core"


@pytest.mark.parametrize(
    ("asked", "error", "field"),
    [
        ({"tier": "agent"}, InvalidTier, "tier"),
        ({"tier": "lessons"}, InvalidTier, "tier"),
        ({"tier": "peers"}, MissingKey, "key"),
        ({"tier": "peers", "key": "../ada"}, MissingKey, "key"),
        ({"tier": "daily", "key": "2026-02-30"}, MissingKey, "key"),
        ({"tier": "AGENT", "key": "x"}, MissingKey, "key"),
        ({"tier": "AGENT", "mode": "merge"}, InvalidMode, "mode"),
        ({"tier": "AGENT", "content": " \n"}, EmptyContent, "content"),
    ],
)
async def test_a_wrong_request_names_the_field(
    world: World, asked: dict[str, Any], error: type[Exception], field: str
) -> None:
    with pytest.raises(error) as refused:
        await world.owner.document_write(**{"mode": "append", "content": "x", "agent_id": "ada", **asked})
    assert refused.value.field == field  # type: ignore[attr-defined]


async def test_a_document_that_would_be_too_large_is_refused_with_what_is_needed_to_shorten_it(world: World) -> None:
    held = "x" * 3_000
    await world.agent.document_write("AGENT", "replace", held)
    near = await world.agent.document_write("AGENT", "append", "y" * 500)
    assert (near.cap_pct, near.usage) == (87, "3502 of 4000 bytes, 87%")
    assert near.current_entries == f"{held}\n{'y' * 500}\n"
    assert "mode=replace" in (near.warning or "")
    for mode, content, projected in (("append", "z" * 600, 4_103), ("replace", "z" * 4_001, 4_001)):
        async with world.stack.http(world.agent_token) as http:
            answer = await http.post("/memory/write", json={"tier": "AGENT", "mode": mode, "content": content})
        body = answer.json()
        assert answer.status_code == 413
        assert {name: body[name] for name in ("tier", "cap_bytes", "projected_size", "current_size", "usage")} == {
            "tier": "AGENT",
            "cap_bytes": 4_000,
            "projected_size": projected,
            "current_size": 3_502,
            "usage": "3502 of 4000 bytes, 87%",
        }
        assert body["current_entries"] == near.current_entries
        assert body["hint"].startswith("consolidate current_entries")
        assert "in this turn with mode=replace" in body["hint"]
    assert (await world.agent.document_read("AGENT")).bytes == 3_502
    assert [(one["reason"], one["bytes"]) for one in await world.rejections()] == [("cap", 4_103), ("cap", 4_001)]
    full = await world.agent.document_write("AGENT", "replace", "é" * 2_000)
    assert (full.bytes, full.cap_pct) == (4_000, 100)
    assert (await world.agent.document_write("AGENT", "replace", "short")).warning is None


async def test_all_documents_of_an_agent_have_a_limit_together(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crew_journal.services.documents.checks.AGENT_TOTAL_BYTES", 3_000)
    await world.agent.document_write("AGENT", "replace", "x" * 2_000)
    await world.agent.document_write("peers", "replace", "y" * 900, key="bruno")
    with pytest.raises(CapExceeded, match=r"documents of a-ada would have 3101 of 3000"):
        await world.agent.document_write("daily", "append", "z" * 200)
    await world.agent.document_write("AGENT", "replace", "x" * 1_000)
    await world.agent.document_write("daily", "append", "z" * 200)


async def test_two_replaces_of_one_version_cannot_both_succeed(world: World) -> None:
    first = await world.agent.document_write("AGENT", "replace", "one", expected_seq=0)
    outcomes = await asyncio.gather(
        *(world.agent.document_write("AGENT", "replace", f"two {n}", expected_seq=first.seq) for n in range(8)),
        return_exceptions=True,
    )
    won = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    lost = [outcome for outcome in outcomes if isinstance(outcome, DocumentConflict)]
    assert (len(won), len(lost)) == (1, 7)
    assert all(f"is at version {won[0].seq}" in one.message for one in lost)
    assert (await world.agent.document_read("AGENT")).seq == won[0].seq


async def test_a_replace_that_names_no_version_succeeds_beside_appends(world: World) -> None:
    appends = [world.agent.document_write("AGENT", "append", f"- line {n}") for n in range(30)]
    replaces = [world.agent.document_write("AGENT", "replace", f"text {n}") for n in range(5)]
    written = await asyncio.gather(*appends, *replaces)
    last = max(one.seq for one in written[30:])
    after = sorted((one.seq, n) for n, one in enumerate(written[:30]) if one.seq > last)
    text = (await world.agent.document_read("AGENT")).content.splitlines()
    assert text[1:] == [f"- line {n}" for _, n in after]


async def test_a_write_id_counts_once_and_for_one_content(world: World) -> None:
    first = await world.agent.document_write("AGENT", "append", "- once", write_id="w1")
    for _ in range(2):
        again = await world.agent.document_write("AGENT", "append", "- once", write_id="w1")
        assert (again.seq, again.duplicate, again.bytes_written) == (first.seq, True, 0)
    both = await asyncio.gather(
        *(world.agent.document_write("AGENT", "append", "- twice", write_id="w2") for _ in range(2))
    )
    assert len({one.seq for one in both}) == 1
    with pytest.raises(WriteIdTaken):
        await world.agent.document_write("AGENT", "append", "- other", write_id="w1")
    with pytest.raises(WriteIdTaken):
        await world.agent.document_write("daily", "append", "- once", write_id="w1")
    assert (await world.agent.document_read("AGENT")).content == "- once\n- twice\n"


async def test_a_replace_whose_ack_is_lost_is_no_conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losing: list[int] = []
    hear = Writer._on_ack

    def lose(self: Writer, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        if losing:
            losing.pop()
        else:
            hear(self, subject, reply, data, headers)

    monkeypatch.setattr(Writer, "_on_ack", lose)
    async with running_stack(tmp_path) as stack, stack.client() as owner:
        stack.writer._ack_timeout_s = 0.1
        first = await owner.document_write("WORKSPACE", "replace", "one", expected_seq=0)
        losing.append(1)
        second = await owner.document_write("WORKSPACE", "replace", "two", expected_seq=first.seq)
        assert not losing
        losing.append(1)
        third = await owner.document_write("WORKSPACE", "append", "three")
        assert not losing
        assert (second.seq, third.seq) == (first.seq + 1, first.seq + 2)
        assert (await owner.document_read("WORKSPACE")).content == "two\nthree\n"
        assert not third.duplicate


async def test_a_repeated_write_is_answered_although_the_document_is_full_by_now(world: World) -> None:
    first = await world.agent.document_write("AGENT", "append", "x" * 3_000, write_id="w1")
    again = await world.agent.document_write("AGENT", "append", "x" * 3_000, write_id="w1")
    assert (again.seq, again.duplicate) == (first.seq, True)


async def test_versions_can_be_listed_read_compared_and_restored(world: World) -> None:
    one = await world.agent.document_write("AGENT", "replace", "alpha\nbeta\n", reason="first")
    two = await world.agent.document_write("AGENT", "append", "gamma")
    three = await world.agent.document_write("AGENT", "replace", "alpha\ndelta\n")
    listed = await world.agent.document_versions("AGENT")
    assert [(v.seq, v.action, v.bytes) for v in listed.versions] == [
        (three.seq, "replace", 12),
        (two.seq, "append", 17),
        (one.seq, "replace", 11),
    ]
    assert listed.versions[-1].reason == "first"
    assert [v.seq for v in (await world.agent.document_versions("AGENT", limit=1)).versions] == [three.seq]
    assert listed.versions[0].parent_sha256 == listed.versions[1].sha256
    read = world.agent.document_read
    assert (await read("AGENT", version=two.seq)).content == "alpha\nbeta\ngamma\n"
    assert (await read("AGENT", as_of=str(three.seq - 1))).seq == two.seq
    assert (await read("AGENT", as_of=str(1))).content == ""
    with pytest.raises(NotFound, match="no version"):
        await read("AGENT", version=three.seq + 1_000)
    diff = await world.agent.document_diff("AGENT", from_version=two.seq)
    assert diff.to_version == three.seq
    assert diff.diff.splitlines()[2:] == ["@@ -1,3 +1,2 @@", " alpha", "-beta", "-gamma", "+delta"]
    assert (await world.agent.document_diff("AGENT", from_version=two.seq, to_version=two.seq)).diff == ""
    restored = await world.agent.document_restore("AGENT", version=two.seq, reason="it was better")
    now = await read("AGENT")
    assert (now.content, now.seq) == ("alpha\nbeta\ngamma\n", restored.seq)
    assert (await world.owner.document_versions("daily", agent_id="ada")).history == "unrecorded"


async def test_a_retracted_document_reads_empty_until_it_is_restored(world: World) -> None:
    with pytest.raises(NotFound):
        await world.agent.document_retract("AGENT")
    await world.agent.document_write("AGENT", "append", "- alpha")
    retracted = await world.agent.document_retract("AGENT", reason="wrong")
    read = await world.agent.document_read("AGENT")
    assert (read.content, read.retracted, read.seq) == ("", True, retracted.seq)
    again = await world.agent.document_retract("AGENT")
    assert (again.duplicate, again.seq) == (True, retracted.seq)
    with pytest.raises(EmptyContent):
        await world.agent.document_restore("AGENT", version=retracted.seq)
    await world.agent.document_restore("AGENT")
    assert (await world.agent.document_read("AGENT")).content == "- alpha\n"
    await world.agent.document_retract("AGENT")
    await world.agent.document_write("AGENT", "append", "- beta")
    assert (await world.agent.document_read("AGENT")).content == "- beta\n"


async def test_the_text_of_a_swept_version_is_gone_but_the_document_stays(world: World) -> None:
    one = await world.agent.document_write("AGENT", "replace", "alpha")
    await world.agent.document_write("AGENT", "replace", "beta")
    await world.record(MemoryVersionsSwept(cutoff_ms=2**52, keep_latest=1))
    listed = await world.agent.document_versions("AGENT")
    assert [version.gone for version in listed.versions] == [False, True]
    for attempt in (
        world.agent.document_read("AGENT", version=one.seq),
        world.agent.document_restore("AGENT", version=one.seq),
        world.agent.document_diff("AGENT", from_version=one.seq),
    ):
        with pytest.raises(VersionGone):
            await attempt
    assert (await world.agent.document_read("AGENT")).content == "beta"

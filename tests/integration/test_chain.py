"""The transparency log on a real node: sealing, checking, proving, erasures, restarts, and streams that were changed."""

from __future__ import annotations

import asyncio
import base64
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.embedding import until
from support.running import running_node

from crew_journal.schemas.chain.checkpoint import public_key, verified
from crew_journal.schemas.chain.operations import VerifyChainAnswer
from crew_journal.schemas.core.errors import NotFound
from crew_journal.services.chain import sealer
from crew_journal.services.chain.anchors import ANCHOR_FILE, AnchorFile, signing_key
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.data_dir import subject_key

DEADLINE_S = 30.0
POLL_S = 0.05


@pytest.fixture(autouse=True)
def sealers(monkeypatch: pytest.MonkeyPatch) -> list[sealer.Sealer]:
    """The sealers that were started."""
    started: list[sealer.Sealer] = []

    async def start(part: sealer.Sealer, begin: Any = sealer.Sealer.start) -> None:
        started.append(part)
        await begin(part)

    monkeypatch.setattr(sealer.Sealer, "start", start)
    return started


@asynccontextmanager
async def running(data_dir: Path, **given: Any) -> AsyncIterator[AsyncCrewJournal]:
    async with (
        running_node(data_dir, seal_s=0.2, **given) as node,
        AsyncCrewJournal(node.http_url, token=node.owner_token) as client,
    ):
        yield client


async def noted(client: AsyncCrewJournal, summary: str, **fields: Any) -> tuple[str, int]:
    """Append an entry; its id and sequence."""
    entry = {"workspace_id": "default", "entry_type": "memory.remembered", "summary": summary, **fields}
    [appended] = await client.append_batch([entry])
    return appended.id, appended.seq


async def sealed(client: AsyncCrewJournal, seq: int) -> VerifyChainAnswer:
    """The report of the check, once a seal covers ``seq``."""
    async with asyncio.timeout(DEADLINE_S):
        while (report := await client.verify_chain()).sealed_to < seq:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
    return report


def verdicts(report: VerifyChainAnswer) -> tuple[bool, bool, list[tuple[str, int | None]]]:
    return report.integrity, report.completeness, [(found.kind, found.seq) for found in report.breaks]


async def test_messages_are_sealed_checked_and_proven_also_after_a_restart(tmp_path: Path) -> None:
    data, anchor = tmp_path / "data", tmp_path / "anchor.txt"
    async with running(data, anchors=str(anchor)) as client:
        entry_id, seq = await noted(client, "the door opens at nine")
        report = await sealed(client, seq)
        assert verdicts(report) == (True, True, [])
        assert report.unsalted == 0
        proof = await client.prove_entry(entry_id)
        assert b"the door opens at nine" in base64.b64decode(proof.leaf_data)
        assert (proof.index, proof.public_key) == (seq - 1, report.public_key)
        with pytest.raises(NotFound):
            await client.prove_entry("unknown")
    assert anchor.read_text() == (data / ANCHOR_FILE).read_text()
    public = public_key(signing_key(subject_key(data)))
    assert verified(AnchorFile(anchor).read().notes[-1], public).size >= report.sealed_to
    async with running(data, anchors=str(anchor)) as client:
        _, seq = await noted(client, "and closes at five")
        report = await sealed(client, seq)
        assert verdicts(report) == (True, True, [])
        assert min(report.anchors.values()) >= 1


async def test_erasure_leaves_the_log_whole_and_a_deleted_message_does_not(
    tmp_path: Path, sealers: list[sealer.Sealer]
) -> None:
    async with running(tmp_path / "data") as client:
        note, _ = await noted(client, "Ana's badge word is heron", data_subject_id="ana")
        _, kept = await noted(client, "Ben likes green tea")
        await sealed(client, kept)
        begun = await client.forget("asked by Ana", ids=(note,))
        assert begun.erasure_id is not None
        assert begun.seq is not None
        async with asyncio.timeout(DEADLINE_S):
            while (await client.erasure(begun.erasure_id, min_seq=begun.seq)).state != "completed":  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
        report = await sealed(client, begun.seq)
        assert verdicts(report) == (True, True, [])
        assert report.explained >= 1
        await sealers[0]._node.writer.client.jetstream().delete_msg("JOURNAL", kept)
        assert verdicts(await client.verify_chain()) == (True, False, [("missing", kept)])


async def test_older_copy_of_the_data_is_reported_and_nothing_is_signed_over_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with running(data) as client:
        _, seq = await noted(client, "first")
        await sealed(client, seq)
    shutil.copytree(data, tmp_path / "older")
    async with running(data) as client:
        _, seq = await noted(client, "second")
        report = await sealed(client, seq)
    notes = (data / ANCHOR_FILE).read_text()
    shutil.rmtree(data)
    shutil.copytree(tmp_path / "older", data)
    (data / ANCHOR_FILE).write_text(notes)
    async with running(data) as client:
        await noted(client, "another second")
        answer = await client.verify_chain()
        assert answer.completeness is False
        assert set(answer.counts) == {"cut"}

        async def reported() -> str | None:
            problem: str | None = (await client.status())["seals"]["problem"]
            return problem  # set by the next look of the sealer

        await until(reported, "the refusal to sign")
        assert f"{report.sealed_to} messages" in str(await reported())
    assert (data / ANCHOR_FILE).read_text() == notes

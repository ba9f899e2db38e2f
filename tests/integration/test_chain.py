"""The transparency log on a real node: sealing, checking, proving, erasures, restarts, and streams that were changed."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

import pytest
from nats.aio.client import Client
from nats.js.api import StreamConfig
from support.embedding import until
from support.nats import connected, running_broker
from support.running import running_node

from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.consumers.feed.replay import replay
from crew_journal.schemas.chain import check
from crew_journal.schemas.chain.check import ChainCheck, ChainReport
from crew_journal.schemas.chain.checkpoint import public_key, verified
from crew_journal.schemas.chain.operations import VerifyChainAnswer
from crew_journal.schemas.core.errors import CrewJournalError, NotFound
from crew_journal.schemas.core.subjects import JOURNAL_STREAM
from crew_journal.services.chain import sealer, use_cases
from crew_journal.services.chain.anchors import ANCHOR_FILE, AnchorFile, signing_key
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.data_dir import subject_key
from crew_journal.services.journal.broker.streams import stream_head

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


async def test_proof_of_a_message_that_was_changed_or_removed_is_refused(
    tmp_path: Path, sealers: list[sealer.Sealer], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path / "data") as client:
        note, seq = await noted(client, "the door opens at nine")
        gone, last = await noted(client, "and closes at five")
        await sealed(client, last)
        js = sealers[0]._node.writer.client.jetstream()
        await js.delete_msg("JOURNAL", last)
        with pytest.raises(CrewJournalError, match=f"the message of {gone} at {last} is missing"):
            await client.prove_entry(gone)
        monkeypatch.setattr(use_cases, "leaf_data", lambda subject, headers, body: b"changed")
        with pytest.raises(CrewJournalError, match=f"the message of {note} at {seq} is not the one that was sealed"):
            await client.prove_entry(note)


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


# Files on disk that somebody changed while the node was stopped.


NOTES_EACH = 6
SEALS: Final = "control._system.chain.sealed"


@dataclass(frozen=True)
class Copies:
    """Data directories of a stopped node: as it was, as it is, a fork of the former, and another journal."""

    older: Path
    newer: Path
    fork: Path
    foreign: Path
    anchor: Path
    public: bytes
    sealed_to: int


async def _lived(data: Path, anchor: Path, text: str, rounds: int) -> int:
    """Entries, a change of priority and an erasure, sealed in several seals; returns the last sealed sequence."""
    report = None
    async with running(data, anchors=str(anchor)) as client:
        for number in range(rounds):
            for count in range(NOTES_EACH):
                note, seq = await noted(client, f"{text} {number} {count} <{'x' * 40}>")
            pinned = await client.set_priority(note, "pin", "it matters", workspace_id="default", min_seq=seq)
            report = await sealed(client, max(seq, pinned.seq or 0))
        begun = await client.forget("asked", ids=(note,), workspace_id="default")
        assert begun.erasure_id is not None
        while (await client.erasure(begun.erasure_id, workspace_id="default")).state != "completed":  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        _, seq = await noted(client, f"{text} last")
        report = await sealed(client, seq)
    assert (report.integrity, report.completeness) == (True, True)
    return report.sealed_to


@pytest.fixture(scope="module")
async def copies(tmp_path_factory: pytest.TempPathFactory) -> Copies:
    folder = tmp_path_factory.mktemp("copies")
    newer, older, fork, foreign = (folder / name for name in ("newer", "older", "fork", "foreign"))
    anchor = folder / "anchor.txt"
    await _lived(newer, anchor, "note", 2)
    shutil.copytree(newer, older)
    shutil.copytree(newer, fork)
    sealed_to = await _lived(newer, anchor, "later note", 3)
    await _lived(fork, folder / "fork.txt", "other note", 4)
    await _lived(foreign, folder / "foreign.txt", "foreign note", 4)
    public = public_key(signing_key(subject_key(newer)))
    return Copies(older, newer, fork, foreign, anchor, public, sealed_to)


@dataclass
class Disk:
    """A copy of a stopped node's files that is tampered with."""

    copies: Copies
    folder: Path
    draw: random.Random

    @property
    def anchors(self) -> list[Path]:
        return [self.folder / ANCHOR_FILE, self.folder / "anchor.txt"]

    @property
    def block(self) -> Path:
        """The file of the stream's messages."""
        return next(self.folder.glob("nats/**/JOURNAL/msgs/1.blk"))

    def store_of(self, other: Path) -> None:
        """Put another directory's store in the place of this one."""
        shutil.rmtree(self.folder / "nats")
        shutil.copytree(other / "nats", self.folder / "nats")

    async def messages(self) -> list[RawMessage]:
        async with running_broker(self.folder) as broker, connected(broker) as client:
            return await _stored(client)

    async def rewrite(self, change: Callable[[list[RawMessage | None]], None]) -> None:
        """Write the stream again: a message for each sequence, or none."""
        async with running_broker(self.folder) as broker, connected(broker) as client:
            known = {message.seq: message for message in await _stored(client)}
            wanted: list[RawMessage | None] = [known.get(seq) for seq in range(1, max(known) + 1)]
            change(wanted)
            js = client.jetstream()
            config = (await js.stream_info(JOURNAL_STREAM)).config
            await js.delete_stream(JOURNAL_STREAM)
            await js.add_stream(StreamConfig(name=JOURNAL_STREAM, subjects=config.subjects, duplicate_window=0.1))
            for seq, message in enumerate(wanted, 1):
                subject = "control._system.gone" if message is None else message.subject
                headers = None if message is None else dict(message.headers or {})
                while (await js.publish(subject, b"" if message is None else message.data, headers=headers)).duplicate:  # noqa: ASYNC110
                    await asyncio.sleep(POLL_S)  # until the broker has forgotten the copy
                if message is None:
                    await js.delete_msg(JOURNAL_STREAM, seq)

    async def report(self) -> ChainReport:
        reading = ChainCheck(self.copies.public, [AnchorFile(path, path.name).read() for path in self.anchors])
        async with running_broker(self.folder) as broker, connected(broker) as client:
            for message in await _stored(client):
                reading.take(message.seq, message.subject, message.headers, message.data)
        return reading.report()


async def _stored(client: Client) -> list[RawMessage]:
    try:
        head = await stream_head(client)
    except CrewJournalError:  # the stream is gone
        return []
    return [message async for messages in replay(client, 1, head) for message in messages] if head else []


Found = set[tuple[str, int | None]]


def _one(disk: Disk, wanted: list[RawMessage | None], *, seal: bool = False) -> int:
    """Index of a sealed message that is there; the next one is, too."""
    return disk.draw.choice(
        [
            at
            for at in range(disk.copies.sealed_to - 2)
            if (one := wanted[at]) is not None
            and wanted[at + 1] is not None
            and (one.subject == SEALS) is seal
            and b"erasure" not in one.data
        ]
    )


async def _edited(disk: Disk) -> Found:
    def change(wanted: list[RawMessage | None]) -> None:
        at = places[0] = _one(disk, wanted)
        one = cast(RawMessage, wanted[at])
        wanted[at] = replace(one, data=one.data + b" ")

    places = [0]
    await disk.rewrite(change)
    return {(check.EDITED, places[0] + 1)}


async def _dropped(disk: Disk) -> Found:
    def change(wanted: list[RawMessage | None]) -> None:
        places[0] = _one(disk, wanted)
        wanted[places[0]] = None

    places = [0]
    await disk.rewrite(change)
    return {(check.MISSING, places[0] + 1)}


async def _swapped(disk: Disk) -> Found:
    def change(wanted: list[RawMessage | None]) -> None:
        at = places[0] = _one(disk, wanted)
        wanted[at], wanted[at + 1] = wanted[at + 1], wanted[at]

    places = [0]
    await disk.rewrite(change)
    return {(check.MOVED, places[0] + 1), (check.MOVED, places[0] + 2)}


async def _replayed(disk: Disk) -> Found:
    def change(wanted: list[RawMessage | None]) -> None:
        at = places[0] = _one(disk, wanted)
        wanted[at + 1] = wanted[at]

    places = [0]
    await disk.rewrite(change)
    return {(check.MOVED, places[0] + 2)}


async def _checkpoint_changed(disk: Disk) -> Found:
    def change(wanted: list[RawMessage | None]) -> None:
        at = places[0] = _one(disk, wanted, seal=True)
        one = cast(RawMessage, wanted[at])
        entry = json.loads(one.data)
        size = entry["payload"]["last_seq"]
        entry["payload"]["checkpoint"] = entry["payload"]["checkpoint"].replace(f"\n{size}\n", f"\n{size + 1}\n")
        wanted[at] = replace(one, data=json.dumps(entry).encode())

    places = [0]
    await disk.rewrite(change)
    return {(check.UNSIGNED, places[0] + 1)}


async def _truncated(disk: Disk) -> Found:
    def change(wanted: list[RawMessage | None]) -> None:
        del wanted[disk.draw.randrange(20, disk.copies.sealed_to) :]

    await disk.rewrite(change)
    return {(check.CUT, None)}


async def _older_store(disk: Disk) -> Found:
    disk.store_of(disk.copies.older)
    return {(check.CUT, None)}


async def _forked(disk: Disk) -> Found:
    disk.store_of(disk.copies.fork)
    return {(check.FORK, None)}


async def _of_another_signer(disk: Disk) -> Found:
    disk.store_of(disk.copies.foreign)
    return {(check.UNSIGNED, None)}


async def _gone(disk: Disk) -> Found:
    shutil.rmtree(disk.block.parents[1])
    return {(check.CUT, None)}


async def _bytes_changed(disk: Disk) -> Found:
    """A byte of a stored message: the broker leaves out what does not agree with its own checksum."""
    stored = bytearray(disk.block.read_bytes())
    one = disk.draw.choice([m for m in await disk.messages() if m.subject.endswith(".remembered")])
    stored[bytes(stored).index(one.data) + len(one.data) // 2] ^= 1
    disk.block.write_bytes(stored)
    return {(check.MISSING, one.seq), (check.CUT, None)}


async def _block_cut(disk: Disk) -> Found:
    stored = disk.block.read_bytes()
    disk.block.write_bytes(stored[: disk.draw.randrange(len(stored) // 4, len(stored) * 3 // 4)])
    return {(check.CUT, None), (check.MISSING, None)}


async def _anchor_changed(disk: Disk) -> Found:
    """A checkpoint of one anchor, by somebody without the key."""
    path = disk.draw.choice(disk.anchors)
    lines = path.read_text().splitlines(keepends=True)
    at = 5 * disk.draw.randrange(len(lines) // 5)
    lines[at + 1] = f"{int(lines[at + 1]) + 1}\n"
    path.write_text("".join(lines))
    return {(check.UNSIGNED, None)}


async def _anchor_and_end_cut(disk: Disk) -> Found:
    """The end of the journal and of the node's own anchor; the one outside is out of reach."""
    disk.store_of(disk.copies.older)
    (disk.folder / ANCHOR_FILE).write_text((disk.copies.older / ANCHOR_FILE).read_text())
    return {(check.CUT, None)}


async def _anchor_of_the_fork(disk: Disk) -> Found:
    (disk.folder / ANCHOR_FILE).write_text((disk.copies.fork / ANCHOR_FILE).read_text())
    return {(check.FORK, None)}


TAMPERINGS: Final = (
    _edited,
    _dropped,
    _swapped,
    _replayed,
    _checkpoint_changed,
    _truncated,
    _older_store,
    _forked,
    _of_another_signer,
    _gone,
    _bytes_changed,
    _block_cut,
    _anchor_changed,
    _anchor_and_end_cut,
    _anchor_of_the_fork,
)
OF_COMPLETENESS: Final = {check.MISSING, check.CUT}


def _disk(copies: Copies, folder: Path, seed: int) -> Disk:
    shutil.copytree(copies.newer, folder)
    shutil.copy(copies.anchor, folder / "anchor.txt")
    return Disk(copies, folder, random.Random(seed))


async def _check_tampering(copies: Copies, folder: Path, seed: int) -> None:
    disk = _disk(copies, folder, seed)
    tampering = TAMPERINGS[seed % len(TAMPERINGS)]
    wanted = await tampering(disk)
    report = await disk.report()
    breaks = {(found.kind, found.seq) for found in report.breaks}
    place_known = any(seq is not None for _, seq in wanted)
    kinds = {kind for kind, _ in wanted} & set(report.counts)
    assert kinds, f"{tampering.__name__} {seed}: {report.counts}"
    assert wanted & breaks or not place_known, f"{tampering.__name__} {seed}: {report.breaks}"
    assert report.completeness is (not OF_COMPLETENESS & set(report.counts))
    assert report.integrity is (set(report.counts) <= OF_COMPLETENESS)
    assert not (report.integrity and report.completeness)
    shutil.rmtree(folder)


@pytest.mark.parametrize("tampering", range(len(TAMPERINGS)), ids=lambda number: TAMPERINGS[number].__name__.strip("_"))
async def test_files_on_disk_that_somebody_changed_are_found(copies: Copies, tmp_path: Path, tampering: int) -> None:
    await _check_tampering(copies, tmp_path / "disk", tampering)


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
async def test_200_tamperings_of_files_on_disk_are_found(copies: Copies, tmp_path: Path) -> None:
    for seed in range(200):
        await _check_tampering(copies, tmp_path / str(seed), seed)


async def test_an_anchor_that_was_cut_or_removed_changes_no_verdict_and_agrees_less(
    copies: Copies, tmp_path: Path
) -> None:
    disk = _disk(copies, tmp_path / "disk", 1)
    own, outside = disk.anchors
    own.unlink()
    lines = outside.read_text().splitlines(keepends=True)
    outside.write_text("".join(lines[:-7]))  # a whole checkpoint, and two lines of the one before
    report = await disk.report()
    assert (report.integrity, report.completeness, report.breaks) == (True, True, [])
    assert report.anchors == {own.name: 0, outside.name: len(lines) // 5 - 2}

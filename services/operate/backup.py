"""Backups: the streams as the broker copies them, in one file, and a journal made from such a file.

A backup does not contain the views, which are rebuilt from the streams, nor the owner's token and the broker's
passwords: a restored journal gets new ones. It contains the key with which people's names are hashed, because consents
and models cannot be assigned to people without it, and the hashes of people's passwords, so that they can sign in.
Invariant: a file is used only if the hashes of all its parts are right, and a restored journal records the backup from
which it was restored.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import zipfile
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from importlib.metadata import version as distribution_version
from pathlib import Path
from typing import Any, Final

import orjson
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic import BaseModel, ConfigDict, ValidationError

from ...schemas.core.errors import BrokerError, BrokerUnavailable, CrewJournalError
from ...schemas.core.ids import SYSTEM_WORKSPACE
from ...schemas.core.subjects import DEADLETTER_STREAM, JOURNAL_STREAM
from ...schemas.entries.events import ErasureRequested, JournalRestored
from ..data_dir import PASSWORDS_FILE, SUBJECT_KEY_FILE
from ..journal.broker.connection import BrokerConnection
from ..journal.broker.streams import api_request
from ..journal.intake.append import decision_entry
from ..journal.publishing import Writer

# JetStream's copies of a stream, made and restored: every message with its sequence and time, and every gap.


CHUNK_BYTES: Final = 128 * 1024
"""Bytes of a chunk, the broker's own default; a message may have 1 MiB."""
WINDOW_BYTES: Final = 8 * 1024 * 1024
"""Bytes that the broker sends ahead of acks."""
SILENCE_S: Final = 60.0
"""Maximum seconds between two chunks; before the first chunk, the broker reads and packs all blocks."""
_OK: Final = (None, "204")
"""Status of the message that ends a copy."""


class SnapshotStarted(dict[str, Any]):
    """Configuration and state of the copied stream, as JetStream reports them."""


async def snapshot(client: Client, stream: str) -> AsyncIterator[SnapshotStarted | bytes]:
    """A copy of a stream: first its configuration and state, then the chunks.

    Raises:
        BrokerError: If JetStream refuses, or ends the copy early.
        BrokerUnavailable: If the broker stops answering.
    """
    inbox = client.new_inbox()
    chunks: asyncio.Queue[Msg] = asyncio.Queue()
    subscription = await client.subscribe(inbox, cb=chunks.put)
    try:
        params = {
            "deliver_subject": inbox,
            "no_consumers": True,
            "chunk_size": CHUNK_BYTES,
            "window_size": WINDOW_BYTES,
        }
        answer = _checked(await api_request(client, f"STREAM.SNAPSHOT.{stream}", params), f"a copy of {stream}")
        yield SnapshotStarted(config=answer["config"], state=answer["state"])
        while True:
            try:
                message = await asyncio.wait_for(chunks.get(), SILENCE_S)
            except TimeoutError:
                raise BrokerUnavailable(
                    f"the broker sent nothing of {stream} for {SILENCE_S:.0f} s", hint="see its log, and try again"
                ) from None
            if message.data:
                if message.reply:  # the last chunk has no reply subject
                    await message.respond(b"")
                yield message.data
                continue
            status = (message.headers or {}).get("Status")
            if status not in _OK:
                why = (message.headers or {}).get("Description", status)
                raise BrokerError(f"the broker ended the copy of {stream}: {why}", hint="try again")
            return
    finally:
        await subscription.unsubscribe()


async def restore(
    client: Client, config: Mapping[str, Any], state: Mapping[str, Any], chunks: AsyncIterable[bytes]
) -> None:
    """Create a stream from a copy.

    Raises:
        BrokerError: If JetStream refuses, because the stream exists or the copy is not one.
        BrokerUnavailable: If the broker stops answering.
    """
    name = str(config["name"])
    what = f"the copy of {name}"
    started = await api_request(client, f"STREAM.RESTORE.{name}", {"config": config, "state": state})
    subject = str(_checked(started, what)["deliver_subject"])
    async for chunk in chunks:
        await _sent(client, subject, chunk, what)
    made = await _sent(client, subject, b"", what)
    for field in ("messages", "last_seq"):
        if made["state"][field] != state[field]:
            raise BrokerError(
                f"{what} is incomplete: {field} is {made['state'][field]}, not {state[field]}",
                hint="use another backup",
            )


async def _sent(client: Client, subject: str, chunk: bytes, what: str) -> dict[str, Any]:
    try:
        answer = await client.request(subject, chunk, timeout=SILENCE_S)
    except (NatsError, TimeoutError) as error:
        raise BrokerUnavailable(
            f"the broker does not take {what}: {error}", hint="see its log, and try again"
        ) from None
    return _checked(orjson.loads(answer.data), what) if answer.data else {}


def _checked(answer: dict[str, Any], what: str) -> dict[str, Any]:
    if (error := answer.get("error")) is not None:
        raise BrokerError(f"the broker refuses {what}: {error.get('description', error)}")
    return answer


FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
STREAMS: Final = (JOURNAL_STREAM, DEADLETTER_STREAM)
"""In this order, so that events that the journal records as parked are in the later copy of DEADLETTER."""
Connect = Callable[[AsyncExitStack, str], Awaitable[BrokerConnection]]


class BackupStream(BaseModel):
    """A stream in a backup.

    Attributes:
        sha256: SHA-256 of its bytes.
        size: Its bytes.
        config: Its configuration, as JetStream has it.
        state: Its state.
    """

    model_config = ConfigDict(frozen=True)
    sha256: str
    size: int
    config: dict[str, Any]
    state: dict[str, Any]


class Manifest(BaseModel):
    """The content of a backup.

    Attributes:
        format: Format of the file.
        version: Version of Crew Journal.
        made_at: When it was made.
        streams: Streams by name.
        subject_key: SHA-256 of the part ``subject.key``; None in backups of earlier versions, which lack this part.
        passwords: SHA-256 of the part ``passwords.json``; None if nobody had a password.
    """

    model_config = ConfigDict(frozen=True)
    format: int
    version: str
    made_at: datetime
    streams: dict[str, BackupStream]
    subject_key: str | None = None
    passwords: str | None = None

    @property
    def last_seq(self) -> int:
        """Last sequence of the journal."""
        return int(self.streams[JOURNAL_STREAM].state["last_seq"])

    @property
    def messages(self) -> int:
        """Messages of the journal."""
        return int(self.streams[JOURNAL_STREAM].state["messages"])


async def backup_records(
    connect: Connect,
    clock: Callable[[], datetime],
    subject_key: bytes,
    passwords: Callable[[], bytes | None] = lambda: None,
) -> AsyncIterator[Mapping[str, Any]]:
    """The backup of a running node.

    Records ``subject_key``, ``passwords``, for each stream ``stream`` and its ``chunk`` records, ``result``.

    Args:
        connect: Opens a connection of the service.
        clock: The time, UTC.
        subject_key: The key that names people in events.
        passwords: Returns the file with the hashes of passwords; None if there is none.

    Raises:
        BrokerError: If JetStream refuses.
    """
    async with AsyncExitStack() as own:
        client = await connect(own, "crew-journal backup")
        yield {"subject_key": subject_key.hex()}
        if (hashes := await asyncio.to_thread(passwords)) is not None:
            yield {"passwords": hashes.decode()}
        for name in STREAMS:
            async for piece in snapshot(client, name):
                if isinstance(piece, SnapshotStarted):
                    yield {"stream": name, **piece}
                else:
                    yield {"chunk": base64.b64encode(piece).decode("ascii")}
        yield {"result": {"version": distribution_version("crew-journal"), "made_at": clock().isoformat()}}


class BackupFile:
    """A backup that is being written: a ZIP archive with a part for each stream and the manifest at its end."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb")
        self._archive = zipfile.ZipFile(self._file, "w", zipfile.ZIP_STORED)
        self._parts: dict[str, BackupStream] = {}
        self._open: tuple[Any, Any, Mapping[str, Any]] | None = None
        self._subject_key: str | None = None
        self._passwords: str | None = None
        self.size = 0

    def take(self, record: Mapping[str, Any]) -> Manifest | None:
        """Write a record of ``backup_records``; the manifest after the last one."""
        if "chunk" in record:
            assert self._open is not None
            file, digest, _ = self._open
            chunk = base64.b64decode(record["chunk"])
            file.write(chunk)
            digest.update(chunk)
            self.size += len(chunk)
            return None
        self._end_part()
        if "subject_key" in record:
            text = f"{record['subject_key']}\n".encode("ascii")
            self._archive.writestr(SUBJECT_KEY_FILE, text)
            self._subject_key = hashlib.sha256(text).hexdigest()
            return None
        if "passwords" in record:
            self._archive.writestr(PASSWORDS_FILE, record["passwords"])
            self._passwords = hashlib.sha256(record["passwords"].encode()).hexdigest()
            return None
        if "stream" in record:
            self._open = self._archive.open(record["stream"], "w", force_zip64=True), hashlib.sha256(), record
            return None
        manifest = Manifest(
            format=FORMAT,
            streams=self._parts,
            subject_key=self._subject_key,
            passwords=self._passwords,
            **record["result"],
        )
        self._archive.writestr(MANIFEST, manifest.model_dump_json(indent=1))
        return manifest

    def _end_part(self) -> None:
        if self._open is None:
            return
        file, digest, about = self._open
        self._open = None
        file.close()
        name, size = about["stream"], self._archive.getinfo(about["stream"]).file_size
        self._parts[name] = BackupStream(
            sha256=digest.hexdigest(), size=size, config=about["config"], state=about["state"]
        )

    def close(self) -> None:
        """Finish the archive."""
        if self._open is not None:
            self._open[0].close()
        self._archive.close()
        self._file.close()

    def abandon(self) -> None:
        """Close open files without finishing the archive, after a failed write."""
        with contextlib.suppress(OSError, ValueError):
            if self._open is not None:
                self._open[0].close()
        self._archive.fp = None
        with contextlib.suppress(OSError):
            self._file.close()


def checked_backup(path: Path) -> Manifest:
    """Check all parts of a backup and return its manifest.

    Raises:
        CrewJournalError: If it is not a backup, of a later format, or damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = Manifest.model_validate_json(archive.read(MANIFEST))
            if manifest.format != FORMAT:
                raise CrewJournalError(
                    f"{path} is a backup of format {manifest.format}",
                    hint="restore it with a later version",
                )
            for name, part in manifest.streams.items():
                digest = hashlib.sha256()
                with archive.open(name) as file:
                    while chunk := file.read(CHUNK_BYTES):
                        digest.update(chunk)
                if digest.hexdigest() != part.sha256:
                    raise CrewJournalError(f"{path} is damaged: {name} has another hash", hint="use another backup")
            for name, digest_of_file in (
                (SUBJECT_KEY_FILE, manifest.subject_key),
                (PASSWORDS_FILE, manifest.passwords),
            ):
                if digest_of_file is not None and hashlib.sha256(archive.read(name)).hexdigest() != digest_of_file:
                    raise CrewJournalError(f"{path} is damaged: {name} has another hash", hint="use another backup")
    except (zipfile.BadZipFile, KeyError, ValidationError, json.JSONDecodeError) as error:
        raise CrewJournalError(
            f"{path} is not a complete backup: {type(error).__name__}",
            hint="use a file that `crew-journal backup` wrote",
        ) from None
    return manifest


def subject_key_of(path: Path, manifest: Manifest) -> bytes | None:
    """The key with which people's names are hashed, from a checked backup; None if the backup lacks it."""
    if manifest.subject_key is None:
        return None
    with zipfile.ZipFile(path) as archive:
        return bytes.fromhex(archive.read(SUBJECT_KEY_FILE).decode("ascii"))


def passwords_of(path: Path, manifest: Manifest) -> str | None:
    """The file with the hashes of passwords, from a checked backup; None if the backup has none."""
    if manifest.passwords is None:
        return None
    with zipfile.ZipFile(path) as archive:
        return archive.read(PASSWORDS_FILE).decode()


async def restore_streams(
    client: BrokerConnection,
    path: Path,
    manifest: Manifest,
    digest: str,
    now: datetime,
    erasures: Sequence[tuple[str, ErasureRequested]] = (),
    *,
    replicas: int = 1,
) -> int:
    """Create the streams in an empty broker from a checked backup, and record that; returns the record's sequence.

    Args:
        client: A connection of the service.
        path: The backup.
        manifest: Its manifest.
        digest: SHA-256 of the file.
        now: The time, UTC.
        erasures: Requests that came after the backup, each with its workspace; the first start carries them out.
        replicas: Copies of the streams, whatever their number was in the backup.
    """
    with zipfile.ZipFile(path) as archive:
        for name, part in manifest.streams.items():
            config = {**part.config, "num_replicas": replicas}
            await restore(client, config, part.state, _chunks(archive, name))
    payload = JournalRestored(
        backup_sha256=digest, made_at=manifest.made_at, last_seq=manifest.last_seq, messages=manifest.messages
    )
    summary = f"restored from a backup of {manifest.made_at:%Y-%m-%d %H:%M} UTC, at sequence {manifest.last_seq:,}"
    writer = Writer(client, atomic=False)
    await writer.open()
    try:
        restored = await writer.post(decision_entry(SYSTEM_WORKSPACE, payload, summary, now))
        for workspace_id, request in erasures:
            await writer.post(decision_entry(workspace_id, request, "erasure requested again after a restore", now))
        return restored.seq
    finally:
        await writer.close()


async def _chunks(archive: zipfile.ZipFile, name: str) -> AsyncIterator[bytes]:
    with archive.open(name) as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk

"""Backups: the streams as the broker copies them, in one file, and a journal made from such a file.

The views are not in it, because they follow from the streams. Nor are the owner's token and the broker's passwords: a
restored journal gets its own. The key that names people is in it, because without it no consent and no model is recognised.
Invariant: a file is used only if the hashes of all its parts are right, and a restored journal says
that it was restored, and from what.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from importlib.metadata import version as distribution_version
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from ...schemas.errors import CrewJournalError
from ...schemas.events.restored import JournalRestored
from ...schemas.ids import SYSTEM_WORKSPACE
from ...schemas.subjects import DEADLETTER_STREAM, JOURNAL_STREAM
from ..data_dir import SUBJECT_KEY_FILE
from ..journal.broker.connection import BrokerConnection
from ..journal.broker.snapshot import CHUNK_BYTES, SnapshotStarted, restore, snapshot
from ..journal.intake.decisions import decision_entry
from ..journal.publishing.writer import Writer

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
STREAMS: Final = (JOURNAL_STREAM, DEADLETTER_STREAM)
"""In this order: what the journal says was parked is in the later copy of DEADLETTER."""
Connect = Callable[[AsyncExitStack, str], Awaitable[BrokerConnection]]


class BackupStream(BaseModel):
    """A stream in a backup.

    Attributes:
        sha256: Of its bytes.
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
    """What a backup holds.

    Attributes:
        format: Of the file.
        version: Of Crew Journal.
        made_at: When it was made.
        streams: By name.
        subject_key: SHA-256 of the part ``subject.key``; None in backups of earlier versions, which have none.
    """

    model_config = ConfigDict(frozen=True)
    format: int
    version: str
    made_at: datetime
    streams: dict[str, BackupStream]
    subject_key: str | None = None

    @property
    def last_seq(self) -> int:
        """Last sequence of the journal."""
        return int(self.streams[JOURNAL_STREAM].state["last_seq"])

    @property
    def messages(self) -> int:
        """Messages of the journal."""
        return int(self.streams[JOURNAL_STREAM].state["messages"])


async def backup_records(
    connect: Connect, clock: Callable[[], datetime], subject_key: bytes
) -> AsyncIterator[Mapping[str, Any]]:
    """The backup of a running node: ``subject_key``, a record ``stream`` for each stream, its ``chunk`` records, ``result``.

    Args:
        connect: Makes a connection of the service.
        clock: The time, UTC.
        subject_key: The key that names people in events.

    Raises:
        BrokerError: If JetStream refuses.
    """
    async with AsyncExitStack() as own:
        client = await connect(own, "crew-journal backup")
        yield {"subject_key": subject_key.hex()}
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
        if "stream" in record:
            self._open = self._archive.open(record["stream"], "w", force_zip64=True), hashlib.sha256(), record
            return None
        manifest = Manifest(format=FORMAT, streams=self._parts, subject_key=self._subject_key, **record["result"])
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
        """Close what was opened without finishing the archive, after a write failed: nothing more is written."""
        with contextlib.suppress(OSError, ValueError):
            if self._open is not None:
                self._open[0].close()
        self._archive.fp = None
        with contextlib.suppress(OSError):
            self._file.close()


def checked_backup(path: Path) -> Manifest:
    """The manifest of a backup whose parts are all as they were written.

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
            if manifest.subject_key is not None:
                key = archive.read(SUBJECT_KEY_FILE)
                if hashlib.sha256(key).hexdigest() != manifest.subject_key:
                    raise CrewJournalError(
                        f"{path} is damaged: {SUBJECT_KEY_FILE} has another hash", hint="use another backup"
                    )
    except (zipfile.BadZipFile, KeyError, ValidationError, json.JSONDecodeError) as error:
        raise CrewJournalError(
            f"{path} is not a complete backup: {type(error).__name__}",
            hint="use a file that `crew-journal backup` wrote",
        ) from None
    return manifest


def subject_key_of(path: Path, manifest: Manifest) -> bytes | None:
    """The key that names people in events, from a checked backup; None if it has none."""
    if manifest.subject_key is None:
        return None
    with zipfile.ZipFile(path) as archive:
        return bytes.fromhex(archive.read(SUBJECT_KEY_FILE).decode("ascii"))


async def restore_streams(client: BrokerConnection, path: Path, manifest: Manifest, digest: str, now: datetime) -> int:
    """Make the streams of an empty broker from a checked backup, and record that; returns the sequence of the record.

    Args:
        client: A connection of the service.
        path: The backup.
        manifest: Its manifest.
        digest: SHA-256 of the file.
        now: The time, UTC.
    """
    with zipfile.ZipFile(path) as archive:
        for name, part in manifest.streams.items():
            await restore(client, part.config, part.state, _chunks(archive, name))
    payload = JournalRestored(
        backup_sha256=digest, made_at=manifest.made_at, last_seq=manifest.last_seq, messages=manifest.messages
    )
    summary = f"restored from a backup of {manifest.made_at:%Y-%m-%d %H:%M} UTC, at sequence {manifest.last_seq:,}"
    writer = Writer(client, atomic=False)
    await writer.open()
    try:
        return (await writer.post(decision_entry(SYSTEM_WORKSPACE, payload, summary, now))).seq
    finally:
        await writer.close()


async def _chunks(archive: zipfile.ZipFile, name: str) -> AsyncIterator[bytes]:
    with archive.open(name) as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk

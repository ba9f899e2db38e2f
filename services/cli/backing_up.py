"""``backup``, ``restore`` and ``salvage``: save a journal to a file, restore it, and save lost entries to a file.

Invariant: a backup gets its final name only when it is complete; a restore never changes a data directory that contains
a journal, and never leaves an incomplete one behind. `restore ID` restores a retracted entry.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import click

from ...schemas.core.errors import CrewJournalError, Unavailable
from ...schemas.core.ids import is_id
from ...schemas.standing.operations import RESTORE
from .commands import Argument, Option
from .connection import ANY_PORT, OWNER_TOKEN_FILE, SIGNS, Target, client, local_runtime, sync_client
from .forgetting import POLL_S
from .logs import configure_logging
from .options import Fields, Json, Where, settings_from
from .output import counted, emit, plain, progress_bar, say, show, size_text
from .printers import PRINTERS

if TYPE_CHECKING:
    from ...schemas.entries.events import ErasureRequested
    from ...schemas.settings import Settings
    from ..operate.backup import Manifest

_OTHERS: Final = 0o077
_FOLDER: Final = "nats"
"""Names of the files that a restore creates in the data directory before the first start."""


def backup(
    out: Annotated[
        Path | None, Argument(metavar="[FILE]", dir_okay=False, help="New file. [default: crew-journal-TIME.backup]")
    ] = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Copy the whole journal into one file, while it runs.

    It does not contain the views, which are rebuilt from the journal.

    It contains the key with which people's names are hashed (subject.key), so that consents stay valid after a restore.
    """
    path = out or Path(f"crew-journal-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.backup")
    if path.exists():
        raise click.BadParameter(f"{path} exists already; name a new file", param_hint="FILE")
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with client(where) as journal:
        try:
            manifest = _write(draft, journal.backup())
            draft.replace(path)
        except OSError as error:
            raise CrewJournalError(
                f"the backup could not be written to {path}: {error.strerror or error}",
                hint="free space there, or name a FILE on another disk",
            ) from error
        finally:
            draft.unlink(missing_ok=True)
    show(_report(path, manifest, _digest(path)), json_output, _print_made)


def _write(draft: Path, records: Any) -> Manifest:
    from ..operate.backup import BackupFile

    before = os.umask(_OTHERS)
    try:
        file = BackupFile(draft)
    finally:
        os.umask(before)
    manifest = None
    with progress_bar("backup", unit="bytes") as bar:
        try:
            for record in records:
                manifest = file.take(plain(record))
                bar(file.size, note=size_text(file.size))
            file.close()
        except BaseException:
            file.abandon()
            raise
    if manifest is None:
        raise Unavailable("the backup ended without a result", hint="see the log of `up`, then try again")
    with draft.open("rb+") as written:
        os.fsync(written.fileno())
    return manifest


def restore(
    what: Annotated[str, Argument(metavar="FILE|ID", help="A file that `backup` wrote, or a retracted entry.")],
    reason: Annotated[str | None, Option("--reason", help="Of an entry: why; it is recorded.")] = None,
    erasures: Annotated[
        Path | None,
        Option(
            "--erasures",
            dir_okay=False,
            exists=True,
            metavar="FILE.jsonl",
            help="Of a backup: erasures that came after it, as `list --all --json --type erasure.requested "
            "--type erasure.scoped` writes them; they are carried out before the command ends.",
        ),
    ] = None,
    *,
    asked: Annotated[dict[str, Any], Fields(RESTORE, without=("entry_id", "reason"))],
    where: Where,
    json_output: Json = False,
) -> None:
    """Restore a journal from a backup into a data directory without a journal; or restore a retracted entry.

    The hashes of a backup are checked first. The restore is recorded in the journal (journal.restored), the views are
    built, and the directory gets a new owner's token; all other tokens come from the backup. With CREW_JOURNAL_NATS, the
    streams are restored into that broker, with CREW_JOURNAL_REPLICAS copies. A backup that is older than an erasure
    brings the erased messages back, unless --erasures names the erasures that came after it. An argument with a dot or a
    slash is a file, because ids contain neither.
    """
    if is_id(what):
        if erasures is not None:
            raise click.BadParameter("goes with a backup, not with an entry", param_hint="--erasures")
        if reason is None:
            raise click.BadParameter("is needed to let an entry count again", param_hint="--reason")
        with client(where) as journal:
            done = journal.restore(what, reason=reason, **asked)
        show(done, json_output, PRINTERS["restore"])
        return
    if reason is not None or where.url is not None:
        name = "--reason" if reason is not None else "--url"
        raise click.BadParameter("does not go with a backup, which is restored into --data-dir", param_hint=name)
    if not Path(what).is_file():
        raise click.BadParameter(f"there is no file {what}", param_hint="FILE|ID")
    show(_restored(Path(what), where.folder, erasures), json_output, _print_restored)


def _restored(file: Path, data_dir: Path, erasures: Path | None) -> dict[str, Any]:
    import asyncio

    from ..erasure.restoring import recorded_erasures, requests_of
    from ..operate.backup import checked_backup

    settings = settings_from(data_dir=data_dir, http=ANY_PORT, embedder="none", log_level="error")
    if any((data_dir / sign).exists() for sign in SIGNS):
        raise click.BadParameter(f"{data_dir} holds a journal already; name a new directory", param_hint="--data-dir")
    manifest = checked_backup(file)
    recorded = {} if erasures is None else recorded_erasures(erasures)
    requests = requests_of(recorded)
    digest = _digest(file)
    configure_logging(settings.log_level)
    try:
        seq = asyncio.run(_restore(settings, file, manifest, digest, requests))
    except BaseException:
        shutil.rmtree(data_dir / _FOLDER, ignore_errors=True)
        raise
    with (
        local_runtime(settings) as runtime,
        sync_client(Target(runtime.http_url, runtime.owner_token, data_dir)) as journal,
    ):
        journal.count(min_seq=seq + len(requests))
        erased = sum(wait_erased(journal, *name) for name in recorded)
    more = {"data_dir": str(data_dir.absolute()), "recorded_at": seq, "erasures": len(recorded), "erased": erased}
    return {**_report(file, manifest, digest), **more}


def wait_erased(journal: Any, workspace_id: str, erasure_id: str) -> int:
    """Wait for an erasure of a restored journal; the number of messages that it erased."""
    while True:
        erasure = journal.erasure(erasure_id, workspace_id=workspace_id)
        if erasure.failed:
            raise Unavailable(
                f"erasure {erasure_id}: " + "; ".join(f"{store}: {why}" for store, why in erasure.failed.items()),
                hint="the restored journal still has these messages: the next start of `up` tries again",
            )
        if erasure.state == "completed":
            return int(erasure.messages)
        time.sleep(POLL_S)


async def _restore(
    settings: Settings,
    file: Path,
    manifest: Manifest,
    digest: str,
    erasures: Sequence[tuple[str, ErasureRequested]],
) -> int:
    from ..client.project import claim_journal
    from ..data_dir import PASSWORDS_FILE, keep_subject_key, lock, write_private
    from ..journal.broker.broker import ManagedBroker, find_nats_server
    from ..journal.broker.connection import connect
    from ..operate.backup import passwords_of, restore_streams, subject_key_of

    data_dir = settings.data_dir.resolve()
    claim_journal(data_dir)
    async with AsyncExitStack() as stack:
        stack.callback(lock(data_dir))
        if settings.nats is not None:
            at, replicas = (settings.nats, settings.nats_user, settings.nats_password), settings.replicas or 1
        else:
            binary = find_nats_server([settings.nats_dir], override=settings.nats_server)
            # a restore writes message by message, and 60,000 fsyncs would take 80 s
            broker = ManagedBroker(data_dir, binary, "interval")
            await broker.start()
            stack.push_async_callback(broker.stop)
            at, replicas = (broker.url, broker.user, broker.password), 1
        connection = await connect(*at, "crew-journal restore", files=settings.nats_files)
        stack.push_async_callback(connection.close)
        now = datetime.now(UTC)
        seq = await restore_streams(connection, file, manifest, digest, now, erasures, replicas=replicas)
        if (key := subject_key_of(file, manifest)) is not None:
            keep_subject_key(data_dir, key)
        if (hashes := passwords_of(file, manifest)) is not None:
            write_private(data_dir / PASSWORDS_FILE, hashes)
        return seq


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _report(path: Path, manifest: Manifest, digest: str) -> dict[str, Any]:
    return {
        "file": str(path.absolute()),
        "sha256": digest,
        "bytes": path.stat().st_size,
        "made_at": manifest.made_at.isoformat(),
        "last_seq": manifest.last_seq,
        "messages": manifest.messages,
    }


def _print_made(report: Mapping[str, Any]) -> None:
    messages = counted(report["messages"], "message")
    print(f"{report['file']}  {messages} up to sequence {report['last_seq']:,}, {size_text(report['bytes'])}")
    print(f"sha256  {report['sha256']}")


def _print_restored(report: Mapping[str, Any]) -> None:
    print(
        f"restored {counted(report['messages'], 'message')} up to sequence {report['last_seq']:,} into "
        f"{report['data_dir']}"
    )
    if report["erasures"]:
        print(f"applied {counted(report['erasures'], 'erasure')}: {counted(report['erased'], 'message')} erased")
    say(f"recorded as journal.restored at {report['recorded_at']:,}; a new owner's token is in {OWNER_TOKEN_FILE}")


# ``salvage``: writes entries that the journal has lost and the views still have to a file for ``import``.


def salvage(
    out: Annotated[
        Path, Option("--out", dir_okay=False, metavar="FILE.jsonl", help="New file to write the entries to.")
    ],
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Write the entries that the journal has lost, but the views still have, to a file for `import`.

    Bad blocks of damaged views are skipped, and unreadable rows are counted.

    Import the file after `rebuild --accept-loss`, because until then the views still contain the entries. Decisions of
    the service itself (priorities, tokens, relations …) cannot be imported; they are written to FILE.decisions.jsonl
    and must be repeated by hand.
    """
    decisions = out.with_name(f"{out.name.removesuffix('.jsonl')}.decisions.jsonl")
    for path in (out, decisions):
        if path.exists():
            raise click.BadParameter(f"{path} exists already; name a new file", param_hint="--out")
    counts: dict[str, Any] | None = None
    with ExitStack() as stack, client(where) as journal:
        writing: dict[str, TextIO] = {"entry": stack.enter_context(_new(out))}
        try:
            for item in journal.salvage():
                record = plain(item)
                if "result" in record:
                    counts = dict(record["result"])
                    break
                ((kind, entry),) = record.items()
                if kind not in writing:
                    writing[kind] = stack.enter_context(_new(decisions))
                writing[kind].write(json.dumps(entry, ensure_ascii=False) + "\n")
            if counts is None:
                raise Unavailable("salvage ended without a result", hint="see the log of `up`, then try again")
            for file in writing.values():
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            out.unlink(missing_ok=True)
            decisions.unlink(missing_ok=True)
            raise
    made = str(decisions) if counts["decisions"] else None
    if json_output:
        emit({**counts, "out": str(out), "decisions_out": made})
        return
    print(f"salvaged {counted(counts['entries'], 'entry', 'entries')} to {out}")
    if made is not None:
        say(f"{counts['decisions']:,} decisions of the service are in {made}: repeat by hand those that still apply")
    if counts["unreadable"]:
        number = counted(counts["unreadable"], "lost entry", "lost entries")
        say(f"{number} could not be read, in bad blocks of the views: sequences {counts['unreadable_sequences']}")
    if counts["damaged_files"]:
        say(f"read around bad blocks of {', '.join(counts['damaged_files'])}: keep these files until all is well again")
    if counts["entries"]:
        say(f"next: `crew-journal rebuild --accept-loss`, then `crew-journal import {out}`")


def _new(path: Path) -> TextIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w", encoding="utf-8")

"""``doctor`` and its checks of this machine and this journal, one function each; a problem names the next step.

Invariant: a check changes and starts nothing, except that it briefly binds a free port; a check that raises an error is
reported as a finding.
"""

from __future__ import annotations

import os
import platform
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import click

from ...schemas.core.errors import CrewJournalError, EmbedderError, JournalDamaged, ViewsDamaged
from ..client.find import running
from ..data_dir import RUNTIME_FILE, is_owned
from ..printable import safe
from .commands import Option
from .connection import find_running, resolve, sync_client
from .options import Json, Where, settings_from
from .output import counted, emit, plain, size_text
from .up import refuse_taken

if TYPE_CHECKING:
    from ...schemas.core.ports import Embedder
    from ...schemas.settings import Settings

COMFORTABLE_DISK_FACTOR: Final = 8
"""Times the floor below which ``up`` is not ready; under it there is little time to act."""
PROBE_TIMEOUT_S: Final = 20.0
"""Seconds for a first embedding by a server, the loading of its model included."""
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_NATS_FILES: Final = ("nats/broker.json", "nats/nats.conf", "nats/agents.json")
SECRET_FILES: Final = ("admin.token", *_NATS_FILES, "views.duckdb", "views.duckdb.wal")


class CheckVerdict(StrEnum):
    """How a check went."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


OK, WARN, FAIL = CheckVerdict


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """The result of a check.

    Attributes:
        check: Name of the check.
        verdict: ok, warn (works, but not well or not for long) or fail.
        found: The observation.
        next_step: What to do; empty if there is nothing to do.
    """

    check: str
    verdict: CheckVerdict
    found: str
    next_step: str = ""


Check = Callable[["Settings", Where], Iterator[CheckFinding]]


def run_checks(settings: Settings, where: Where) -> list[CheckFinding]:
    """Every check, in the order a person would look."""
    findings: list[CheckFinding] = []
    for check in CHECKS:
        name = check.__name__.removeprefix("check_").replace("_", "-")
        try:
            findings.extend(check(settings, where))
        except CrewJournalError as error:
            findings.append(CheckFinding(name, FAIL, error.message, error.hint))
        except OSError as error:
            findings.append(CheckFinding(name, FAIL, str(error), "make the path readable"))
    return findings


def check_python(settings: Settings, where: Where) -> Iterator[CheckFinding]:
    """The interpreter."""
    yield CheckFinding("python", OK, platform.python_version())


def check_nats_server(settings: Settings, where: Where) -> Iterator[CheckFinding]:
    """The broker's binary, unless a broker is named."""
    from ..journal.broker.broker import INSTALL_HINT, find_nats_server, version_text

    if settings.nats is not None:
        yield CheckFinding("nats-server", OK, f"not needed: the broker is {settings.nats}")
        return
    binary = find_nats_server([settings.nats_dir], override=settings.nats_server)
    description = f"{version_text(binary.version)} at {binary.path}"
    if binary.has_atomic_batches:
        yield CheckFinding("nats-server", OK, description)
    else:
        yield CheckFinding("nats-server", WARN, f"{description}, which has no atomic batches (2.12)", INSTALL_HINT)


def check_disk(settings: Settings, where: Where) -> Iterator[CheckFinding]:
    """Free space where the data is or will be."""
    from ...schemas.settings import FREE_DISK_FLOOR_BYTES

    folder = settings.data_dir.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    description = f"{size_text(free)} free at {folder}"
    if free < FREE_DISK_FLOOR_BYTES:
        floor = size_text(FREE_DISK_FLOOR_BYTES)
        yield CheckFinding("disk", FAIL, description, f"free some space: below {floor} `up` is not ready")
    elif free < COMFORTABLE_DISK_FACTOR * FREE_DISK_FLOOR_BYTES:
        yield CheckFinding("disk", WARN, description, "free some space, or move the data with --data-dir")
    else:
        yield CheckFinding("disk", OK, description)


def check_data_dir(settings: Settings, where: Where) -> Iterator[CheckFinding]:
    """The data directory can be used, and only its owner can read its secrets."""
    folder = settings.data_dir
    if not folder.exists():
        yield CheckFinding("data-dir", OK, f"{folder.absolute()} is not there yet", "`crew-journal up` creates it")
        return
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield CheckFinding("data-dir", FAIL, f"{folder} cannot be written", f"chown or chmod {folder}")
        return
    yield CheckFinding("data-dir", OK, str(folder.absolute()))
    readable = [name for name in SECRET_FILES if (folder / name).exists() and (folder / name).stat().st_mode & OTHERS]
    if readable:
        paths = " ".join(str(folder / name) for name in readable)
        yield CheckFinding("secrets", FAIL, f"others may read {', '.join(readable)}", f"chmod 600 {paths}")
    else:
        yield CheckFinding("secrets", OK, "only their owner may read them")


def check_views(settings: Settings, where: Where) -> Iterator[CheckFinding]:
    """Check that the views' file can be opened, and that no older file is kept next to it.

    The file is not opened while a process owns the data directory: that process has it open, or is about to.
    """
    from ...consumers.host.opening import AHEAD, DAMAGED, inspect_views
    from ...consumers.host.rebuild import BEFORE_LOSS
    from ..runtime.views import VIEWS_FILE

    path = settings.data_dir / VIEWS_FILE
    if where.url is not None or not path.exists():
        return

    def kept(kind: str) -> list[Path]:
        return sorted(path for path in path.parent.glob(f"{VIEWS_FILE}{kind}*") if path.is_file())

    def names(files: list[Path]) -> str:
        return ", ".join(path.name for path in files if path.suffix != ".wal")

    if damaged := kept(DAMAGED):
        size = size_text(sum(file.stat().st_size for file in damaged))
        description = f"{len(damaged)} damaged earlier take {size}: {names(damaged)}"
        step = "delete them once `crew-journal verify` finds that the journal lacks nothing; until then `salvage` reads them"
        yield CheckFinding("old-views", WARN, description, step)
    if old := kept(".of-"):
        size = size_text(sum(file.stat().st_size for file in old))
        step = "delete them when you no longer need them: views can be rebuilt"
        yield CheckFinding("old-views", WARN, f"{len(old)} put aside earlier take {size}: {names(old)}", step)
    if ahead := kept(AHEAD):
        description = f"the end of the journal is lost; these files hold it: {names(ahead)}"
        yield CheckFinding("journal", FAIL, description, JournalDamaged.HINT)
    if accepted := kept(BEFORE_LOSS):
        description = f"these files hold entries that the journal has lost: {names(accepted)}"
        step = "delete them once what `crew-journal salvage --out FILE` writes is imported again"
        yield CheckFinding("lost-entries", WARN, description, step)
    if is_owned(settings.data_dir):
        return
    try:
        seq = inspect_views(path)
    except ViewsDamaged as damage:
        step = "`crew-journal up` keeps the file under another name and rebuilds the views from the journal"
        yield CheckFinding("views", FAIL, damage.message, step)
    else:
        yield CheckFinding("views", OK, f"{VIEWS_FILE} opens, at {seq:,}", "`crew-journal verify` reads all of it")


def check_parts(settings: Settings, where: Where) -> Iterator[CheckFinding]:
    """Check that every module of a view or a reactor can be loaded."""
    from ...consumers.discovery import discover_projections, discover_reactors

    yield CheckFinding("parts", OK, f"{len(discover_projections())} views, {len(discover_reactors())} reactors")


def check_port(settings: Settings, where: Where) -> Iterator[CheckFinding]:
    """``up`` can listen, unless it does already."""
    from ..http.server import parse_address

    if where.url is not None or find_running(where.folder) is not None:
        return
    host, port = parse_address(settings.http)
    refuse_taken(host, port)
    yield CheckFinding("port", OK, f"{settings.http} is free")


def check_ollama(settings: Settings, where: Where) -> Iterator[CheckFinding]:
    """Ollama answers and has the model."""
    from ...consumers.adapters.ollama import OllamaEmbedder

    at = f"{settings.ollama_model} at {settings.ollama_host}"
    wanted = settings.embedder == "ollama"
    yield _embeds("ollama", at, lambda: OllamaEmbedder(settings.ollama_host, settings.ollama_model), wanted=wanted)


def check_endpoint(settings: Settings, where: Where) -> Iterator[CheckFinding]:
    """Check that the OpenAI-compatible endpoint, if one is set, answers and has the model."""
    from ...consumers.adapters.served import Endpoint, OpenAiEmbedder

    endpoint = Endpoint(settings.embed_base_url, settings.embed_api_key)
    if endpoint.url is not None or settings.embedder == "openai":
        at = f"{settings.embed_model} at {endpoint.url}"
        yield _embeds("endpoint", at, lambda: OpenAiEmbedder(endpoint, settings.embed_model), wanted=True)


def _embeds(name: str, at: str, make: Callable[[], Embedder], *, wanted: bool) -> CheckFinding:
    import asyncio

    async def probe() -> None:
        model = make()
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                await model.probe()
        finally:
            await model.close()

    bad = FAIL if wanted else WARN
    try:
        asyncio.run(probe())
    except EmbedderError as error:
        return CheckFinding(name, bad, error.message, error.hint if wanted else f"only if you want it: {error.hint}")
    except TimeoutError:
        return CheckFinding(name, bad, f"did not embed a sentence within {PROBE_TIMEOUT_S:.0f} s", "look at its log")
    return CheckFinding(name, OK, f"{at} embeds")


def check_minilm(settings: Settings, where: Where) -> Iterator[CheckFinding]:
    """The files of the embedded model are the pinned ones."""
    from ...consumers.adapters.minilm_weights import MODEL_ID, fault_of

    fault = fault_of(settings.models_dir / MODEL_ID)
    if fault is None:
        yield CheckFinding("minilm", OK, f"{MODEL_ID} is installed and verified")
    else:
        bad = FAIL if settings.embedder == "minilm" else WARN
        yield CheckFinding("minilm", bad, f"{MODEL_ID}: {fault}", "crew-journal model install minilm")


def check_running(settings: Settings, where: Where) -> Iterator[CheckFinding]:
    """A running journal is ready and has no dead letters."""
    import httpx

    there = resolve(where)
    if there is None:
        if stale := running(where.folder):
            description = f"process {stale.pid} does not answer at {stale.http}"
            yield CheckFinding("up", FAIL, description, "wait until it is ready, or stop it")
        elif (where.folder / RUNTIME_FILE).exists():
            yield CheckFinding("up", WARN, "it ended without cleaning up", "`crew-journal up` recovers by itself")
        else:
            yield CheckFinding("up", OK, "is not running", "start it with `crew-journal up`")
        return
    try:
        ready = httpx.get(f"{there.url}/readyz", timeout=PROBE_TIMEOUT_S, trust_env=False)
    except httpx.HTTPError as error:
        yield CheckFinding("up", FAIL, f"{there.url} does not answer: {error}", "see its log")
        return
    if ready.is_success:
        yield CheckFinding("up", OK, f"ready at {there.url}")
    else:
        reasons = [str(reason) for reason in ready.json().get("reasons", ())]
        damaged = any(reason.startswith("JournalDamaged") for reason in reasons)
        step = (
            "do what the reason says, in that order; delete nothing before" if damaged else "see `crew-journal status`"
        )
        description = "; ".join(reasons) or f"it answers {ready.status_code}"
        yield CheckFinding("up", FAIL, f"not ready: {description}", step)
    with sync_client(there) as journal:
        report = plain(journal.status())
    if lines := (report.get("journal_damage") or {}).get("broker_said"):
        step = "what was lost, if anything, is named above; see nats/nats.log, and check the disk"
        yield CheckFinding("broker-log", WARN, f"nats-server reported damage: {'; '.join(lines)}", step)
    if letters := report["dead_letters"]["parked"]:
        yield CheckFinding(
            "dead-letters", WARN, f"{counted(letters, 'event')} could not be folded", "crew-journal dlq list"
        )
    else:
        yield CheckFinding("dead-letters", OK, "none")


CHECKS: Final[tuple[Check, ...]] = (
    check_python,
    check_nats_server,
    check_disk,
    check_data_dir,
    check_views,
    check_parts,
    check_port,
    check_ollama,
    check_endpoint,
    check_minilm,
    check_running,
)


def doctor(
    http: Annotated[str | None, Option("--http", help="HOST:PORT that `up` would use.")] = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Check python, nats-server, disk, data directory, port, embedders and a running journal; says what to do."""
    findings = run_checks(settings_from(data_dir=where.folder, http=http), where)
    failed = any(finding.verdict is CheckVerdict.FAIL for finding in findings)
    if json_output:
        emit({"ok": not failed, "checks": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            print(f"{finding.verdict.value:<4}  {finding.check:<14}  {safe(finding.found)}")
            if finding.next_step:
                print(f"      {'':<14}  → {safe(finding.next_step)}")
    raise click.exceptions.Exit(int(failed))

"""The checks of ``doctor``, one function each.

Invariant: no check changes anything but the free port it tries, for a moment; one that breaks is itself a finding.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from ...schemas.errors import BrokerError, CrewJournalError, EmbedderError, ViewsDamaged
from ...schemas.settings import FREE_DISK_FLOOR_BYTES, Settings
from ..data_dir import RUNTIME_FILE, is_owned
from .connection import find_running, read_runtime, resolve, sync_client
from .options import Where
from .output import plain, size_text

MINIMUM_PYTHON: Final = (3, 11)
COMFORTABLE_DISK_FACTOR: Final = 8
"""Times the floor below which ``up`` is not ready; under it there is little time to act."""
PROBE_TIMEOUT_S: Final = 20.0
"""Seconds for a first embedding by Ollama, the loading of its model included."""
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
SECRET_FILES: Final = (
    "admin.token",
    "nats/broker.json",
    "nats/nats.conf",
    "nats/agents.json",
    "views.duckdb",
    "views.duckdb.wal",
)


class Verdict(StrEnum):
    """How a check went."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Attributes:
        check: What was looked at.
        verdict: ok, warn (works, but not well or not for long) or fail.
        found: What is the case.
        next_step: What to do; empty if nothing.
    """

    check: str
    verdict: Verdict
    found: str
    next_step: str = ""


Check = Callable[[Settings, Where], Iterator[Finding]]


def run_checks(settings: Settings, where: Where) -> list[Finding]:
    """Every check, in the order a person would look."""
    findings: list[Finding] = []
    for check in CHECKS:
        try:
            findings.extend(check(settings, where))
        except CrewJournalError as error:
            findings.append(Finding(_name(check), Verdict.FAIL, error.message, error.hint))
        except OSError as error:
            findings.append(Finding(_name(check), Verdict.FAIL, str(error), "make the path readable"))
    return findings


def _name(check: Check) -> str:
    return check.__name__.removeprefix("check_").replace("_", "-")


def check_python(settings: Settings, where: Where) -> Iterator[Finding]:
    """The interpreter."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    good = sys.version_info[:2] >= MINIMUM_PYTHON
    yield Finding("python", Verdict.OK if good else Verdict.FAIL, version, "" if good else "use Python 3.11 or newer")


def check_nats_server(settings: Settings, where: Where) -> Iterator[Finding]:
    """The broker's binary, unless a broker is named."""
    from ..journal.broker.nats_binary import INSTALL_HINT, find_nats_server, version_text

    if settings.nats is not None:
        yield Finding("nats-server", Verdict.OK, f"not needed: the broker is {settings.nats}")
        return
    try:
        binary = find_nats_server([settings.nats_dir], override=settings.nats_server)
    except BrokerError as error:
        yield Finding("nats-server", Verdict.FAIL, error.message, error.hint)
        return
    said = f"{version_text(binary.version)} at {binary.path}"
    if binary.has_atomic_batches:
        yield Finding("nats-server", Verdict.OK, said)
    else:
        yield Finding("nats-server", Verdict.WARN, f"{said}, which has no atomic batches (2.12)", INSTALL_HINT)


def check_disk(settings: Settings, where: Where) -> Iterator[Finding]:
    """Free space where the data is or will be."""
    folder = settings.data_dir.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    said = f"{size_text(free)} free at {folder}"
    if free < FREE_DISK_FLOOR_BYTES:
        yield Finding(
            "disk", Verdict.FAIL, said, f"free some: below {size_text(FREE_DISK_FLOOR_BYTES)} it is not ready"
        )
    elif free < COMFORTABLE_DISK_FACTOR * FREE_DISK_FLOOR_BYTES:
        yield Finding("disk", Verdict.WARN, said, "free some space, or move the data with --data-dir")
    else:
        yield Finding("disk", Verdict.OK, said)


def check_data_dir(settings: Settings, where: Where) -> Iterator[Finding]:
    """That the data directory can be used, and its secrets are nobody else's."""
    folder = settings.data_dir
    if not folder.exists():
        yield Finding("data-dir", Verdict.OK, f"{folder.absolute()} is not there yet", "`crew-journal up` creates it")
        return
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield Finding("data-dir", Verdict.FAIL, f"{folder} cannot be written", f"chown or chmod {folder}")
        return
    yield Finding("data-dir", Verdict.OK, str(folder.absolute()))
    open_files = [name for name in SECRET_FILES if _is_open(folder / name)]
    if open_files:
        paths = " ".join(str(folder / name) for name in open_files)
        yield Finding("secrets", Verdict.FAIL, f"others may read {', '.join(open_files)}", f"chmod 600 {paths}")
    else:
        yield Finding("secrets", Verdict.OK, "only their owner may read them")


def _is_open(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & OTHERS)
    except FileNotFoundError:
        return False


def check_views(settings: Settings, where: Where) -> Iterator[Finding]:
    """That the file of the views can be opened, unless a running journal has it open, and whether old ones lie beside it."""
    from ...consumers.host.opening import inspect_views
    from ..runtime.views import VIEWS_FILE

    path = settings.data_dir / VIEWS_FILE
    if where.url is not None or not path.exists():
        return
    kept = [old for kind in ("of", "damaged") for old in path.parent.glob(f"{VIEWS_FILE}.{kind}-*") if old.is_file()]
    if kept:
        taken = size_text(sum(old.stat().st_size for old in kept))
        said = f"{len(kept)} put aside earlier take {taken}: {', '.join(sorted(old.name for old in kept))}"
        yield Finding("old-views", Verdict.WARN, said, "delete them when you no longer need them: views can be rebuilt")
    yield from _views_that_know_more(path)
    if is_owned(settings.data_dir):
        return  # whoever owns it has the file open or is about to; the readiness of an `up` says how it is
    try:
        seq = inspect_views(path)
    except ViewsDamaged as damage:
        step = "`crew-journal up` keeps the file under another name and rebuilds the views from the journal"
        yield Finding("views", Verdict.FAIL, damage.message, step)
    else:
        yield Finding("views", Verdict.OK, f"{VIEWS_FILE} opens, at {seq:,}", "`crew-journal verify` reads all of it")


def _views_that_know_more(path: Path) -> Iterator[Finding]:
    from ...consumers.host.opening import AHEAD
    from ...consumers.host.rebuild import BEFORE_LOSS
    from ...schemas.errors import JournalDamaged

    def kept(kind: str) -> str:
        return ", ".join(sorted(one.name for one in path.parent.glob(f"{path.name}{kind}*") if one.suffix != ".wal"))

    if ahead := kept(AHEAD):
        said = f"the journal has lost its end; kept because they know it: {ahead}"
        yield Finding("journal", Verdict.FAIL, said, JournalDamaged.HINT)
    if accepted := kept(BEFORE_LOSS):
        step = "delete them once what `crew-journal salvage --out FILE` writes is imported again"
        yield Finding(
            "lost-entries", Verdict.WARN, f"kept because they hold entries that the journal has lost: {accepted}", step
        )


def check_parts(settings: Settings, where: Where) -> Iterator[Finding]:
    """That every file of a view or a reactor holds one that works."""
    from ...consumers.discovery import discover_projections, discover_reactors

    views, reactors = discover_projections(), discover_reactors()
    yield Finding("parts", Verdict.OK, f"{len(views)} views, {len(reactors)} reactors")


def check_port(settings: Settings, where: Where) -> Iterator[Finding]:
    """That ``up`` could listen, unless it does."""
    if where.url is not None or find_running(where.data_dir) is not None:
        return
    host, _, port = settings.http.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), int(port)))
        except ValueError:
            yield Finding("port", Verdict.FAIL, f"{settings.http} is not HOST:PORT", "give --http HOST:PORT")
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            why = "is taken by another program" if taken else f"cannot be used: {error.strerror}"
            yield Finding("port", Verdict.FAIL, f"{settings.http} {why}", "use `up --http 127.0.0.1:0` or another port")
        else:
            yield Finding("port", Verdict.OK, f"{settings.http} is free")


def check_ollama(settings: Settings, where: Where) -> Iterator[Finding]:
    """That Ollama answers and has the model."""
    from ...consumers.adapters.ollama import OllamaEmbedder

    async def probe() -> None:
        model = OllamaEmbedder(settings.ollama_host, settings.ollama_model)
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                await model.probe()
        finally:
            await model.close()

    wanted = settings.embedder == "ollama"
    bad = Verdict.FAIL if wanted else Verdict.WARN
    try:
        asyncio.run(probe())
    except EmbedderError as error:
        yield Finding("ollama", bad, error.message, error.hint if wanted else f"only if you want it: {error.hint}")
    except TimeoutError:
        yield Finding("ollama", bad, f"did not embed a sentence within {PROBE_TIMEOUT_S:.0f} s", "look at its log")
    else:
        yield Finding("ollama", Verdict.OK, f"{settings.ollama_model} at {settings.ollama_host} embeds")


def check_minilm(settings: Settings, where: Where) -> Iterator[Finding]:
    """That the embedded model's files are the pinned ones."""
    from ...consumers.adapters.minilm_weights import MODEL_ID, fault_of

    fault = fault_of(settings.models_dir / MODEL_ID)
    if fault is None:
        yield Finding("minilm", Verdict.OK, f"{MODEL_ID} is installed and verified")
    else:
        bad = Verdict.FAIL if settings.embedder == "minilm" else Verdict.WARN
        yield Finding("minilm", bad, f"{MODEL_ID}: {fault}", "crew-journal embedder install minilm")


def check_running(settings: Settings, where: Where) -> Iterator[Finding]:
    """That a running journal is ready and has no dead letters."""
    import httpx

    there = resolve(where)
    if there is None:
        stale = read_runtime(where.data_dir)
        if stale is not None:
            yield Finding(
                "up",
                Verdict.FAIL,
                f"process {stale.pid} does not answer at {stale.http}",
                "wait until it is ready, or stop it",
            )
        elif (where.data_dir / RUNTIME_FILE).exists():
            yield Finding("up", Verdict.WARN, "it ended without cleaning up", "`crew-journal up` recovers by itself")
        else:
            yield Finding("up", Verdict.OK, "is not running", "start it with `crew-journal up`")
        return
    try:
        ready = httpx.get(f"{there.url}/readyz", timeout=PROBE_TIMEOUT_S, trust_env=False)
    except httpx.HTTPError as error:
        yield Finding("up", Verdict.FAIL, f"{there.url} does not answer: {error}", "see its log")
        return
    if ready.is_success:
        yield Finding("up", Verdict.OK, f"ready at {there.url}")
    else:
        reasons = "; ".join(ready.json().get("reasons", ())) or f"it answers {ready.status_code}"
        damaged = any(str(reason).startswith("JournalDamaged") for reason in ready.json().get("reasons", ()))
        step = (
            "do what the reason says, in that order; delete nothing before" if damaged else "see `crew-journal status`"
        )
        yield Finding("up", Verdict.FAIL, f"not ready: {reasons}", step)
    with sync_client(there) as journal:
        report = plain(journal.status())
    if said := (report.get("journal_damage") or {}).get("broker_said"):
        step = "what was lost, if anything, is named above; see nats/nats.log, and check the disk"
        yield Finding("broker-log", Verdict.WARN, f"nats-server reported damage: {'; '.join(said)}", step)
    letters = report["dead_letters"]["parked"]
    if letters:
        yield Finding("dead-letters", Verdict.WARN, f"{letters} events could not be folded", "crew-journal dlq list")
    else:
        yield Finding("dead-letters", Verdict.OK, "none")


CHECKS: Final[tuple[Check, ...]] = (
    check_python,
    check_nats_server,
    check_disk,
    check_data_dir,
    check_views,
    check_parts,
    check_port,
    check_ollama,
    check_minilm,
    check_running,
)

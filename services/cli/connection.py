"""Finds the journal of a command: a running service, or a runtime that is started only for this command.

Invariant: a command never opens DuckDB or a stream itself. It always sends requests over HTTP, so that all rules of the
service also apply to the command line.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from ...schemas.core.errors import NotAuthenticated, NotFound, Unavailable
from ...schemas.core.user_folders import own_journal
from ..client.find import data_dir_of
from ..client.find import running as running_in
from ..data_dir import Running, is_owned
from .configuration import environment_elsewhere
from .logs import configure_logging
from .options import DataDir, Json, Where, settings_from
from .output import say, show

if TYPE_CHECKING:
    from ...schemas.settings import Settings
    from ..client import AsyncCrewJournal, CrewJournal
    from ..runtime.node import Runtime

OWNER_TOKEN_FILE: Final = "admin.token"
SIGNS: Final = (OWNER_TOKEN_FILE, "nats/store", "views.duckdb")
"""Any of them shows that a directory holds a journal; a token that is missing is made at the next start."""
PROBE_TIMEOUT_S: Final = 15.0
"""Seconds for a running service to answer ``/healthz``; under 10 ms when it is idle. Its process is known to be alive:
giving up too soon would open a journal that is in use.
"""
ANY_PORT: Final = "127.0.0.1:0"
USUAL_PLACE: Final = ("127.0.0.1", 9119)
"""Where ``up`` listens unless it is set; as in ``Settings`` (a test compares)."""
START_TIMEOUT_S: Final = 180.0
"""Seconds until a runtime must be up: after a crash the broker re-reads its blocks (up to 120 s) and the views catch up; an
ordinary start takes under 4."""


_LOOK_S: Final = 0.1
_LOG_FILE: Final = "up.log"
_APART_ON_WINDOWS: Final = 0x0000_0208
"""DETACHED_PROCESS and CREATE_NEW_PROCESS_GROUP, which ``subprocess`` names on Windows only."""
STOP_TIMEOUT_S: Final = 60.0
"""Seconds until a node that was asked to stop must be gone; usually under 2."""


@dataclass(frozen=True, slots=True)
class Target:
    """A service to talk to.

    Attributes:
        url: Its HTTP address.
        token: The token to send.
        data_dir: Its data directory, None if the service was named by address.
        local: Whether it was started for this command.
    """

    url: str
    token: str = field(repr=False)
    data_dir: Path | None
    local: bool = False


def find_running(data_dir: Path) -> Running | None:
    """The ``up`` of this data directory, if one runs and answers."""
    from http.client import HTTPConnection, HTTPException

    running = running_in(data_dir)
    if running is None:
        return None
    try:
        parts = urlsplit(running.http)
        probe = HTTPConnection(parts.hostname or "", parts.port, timeout=PROBE_TIMEOUT_S)
        with closing(probe):
            probe.request("GET", "/healthz")
            return running if probe.getresponse().status < 500 else None
    except (OSError, ValueError, HTTPException):
        return None


def owner_token(data_dir: Path) -> str:
    """The owner's token of a data directory.

    Raises:
        NotAuthenticated: If it cannot be read.
    """
    path = data_dir / OWNER_TOKEN_FILE
    try:
        return path.read_text("ascii").strip()
    except FileNotFoundError:
        raise NotAuthenticated(
            f"the owner's token is missing from {path}", hint="start `up` again, which makes a new one, or give --token"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise NotAuthenticated(
            f"the owner's token cannot be read from {path}: {getattr(error, 'strerror', None) or 'not a token'}",
            hint="run the command as the user who runs `up`, or give --token",
        ) from None


def resolve(where: Where) -> Target | None:
    """The running service that the options name; None if no ``up`` runs on the data directory.

    Raises:
        NotAuthenticated: If there is no token.
        NotAllowed: If the data directory was found in the current folder and is not trusted.
    """
    if where.url:
        if where.bearer is None:
            raise NotAuthenticated("--url needs a token", hint="give --token or set CREW_JOURNAL_TOKEN")
        return Target(where.url.rstrip("/"), where.bearer, None)
    folder = where.folder
    running = find_running(folder)
    if running is None:
        return None
    return Target(running.http, where.bearer or owner_token(folder), folder)


@contextmanager
def target(where: Where, *, embedder: str | None = None, create: bool = False, stay: bool = False) -> Iterator[Target]:
    """The service for requests; if none runs, a service is started for the duration of the block.

    Args:
        where: The options that name the journal.
        embedder: Embedder of a started runtime; ``none`` unless the command needs vectors.
        create: Whether a missing data directory may be created.
        stay: Whether the node of the user's own journal is started in the background instead, and stays.

    Raises:
        NotFound: If there is no journal and none may be created.
        Unavailable: If it does not start.
    """
    target = resolve(where)
    if target is not None:
        yield target
        return
    folder = where.folder
    if not (create or stay) and not has_journal(folder):
        raise NotFound(
            f"there is no journal in {folder.absolute()} yet",
            hint='`crew-journal remember "…"` or `crew-journal up` makes one; `crew-journal config show` says why this one',
        )
    if stay and is_own(folder):
        node = start_node(folder)
        say(f"no node was running: started one in the background on {node.http} (`crew-journal down` stops it)")
        yield Target(node.http, where.bearer or owner_token(folder), folder)
        return
    say(f"no node runs on {folder}: working on it for this command alone; `crew-journal up` keeps one running")
    settings = settings_from(data_dir=folder, http=ANY_PORT, embedder=embedder or "none")
    if "log_level" not in settings.model_fields_set:
        settings = settings.model_copy(update={"log_level": "error"})
    with local_runtime(settings) as runtime:
        yield Target(runtime.http_url, where.bearer or runtime.owner_token, folder, local=True)


def has_journal(folder: Path) -> bool:
    """Whether a data directory holds a journal."""
    return any((folder / sign).exists() for sign in SIGNS)


def is_own(folder: Path) -> bool:
    """Whether a data directory is the user's own journal, whose node may stay in the background."""
    try:
        return folder.absolute() == own_journal()
    except RuntimeError:  # there is no home directory
        return False


def start_node(data_dir: Path) -> Running:
    """Start ``up`` on a data directory, in the background, and wait until it answers.

    If another program listens on the usual port and no port was chosen, a free one is taken.

    Raises:
        Unavailable: If it ends, or does not answer in time; its log says why.
    """
    from ..client.isolation import CLI_MODULE, isolated_python
    from ..client.project import claim_journal

    data_dir = data_dir.absolute()
    claim_journal(data_dir)
    log = data_dir / _LOG_FILE
    apart: dict[str, Any] = (
        {"creationflags": _APART_ON_WINDOWS} if sys.platform == "win32" else {"start_new_session": True}
    )
    command = [*isolated_python(), "-m", CLI_MODULE, "up", "--data-dir", str(data_dir), *_free_port()]
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(log, flags, 0o600), "ab") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=data_dir,
            env=environment_elsewhere(),
            **apart,
        )
    until = time.monotonic() + START_TIMEOUT_S
    while (node := running_in(data_dir)) is None:
        if process.poll() is not None and not is_owned(data_dir):
            raise Unavailable(
                f"the node did not start: {_last_error(log)}", hint=f"`crew-journal up` shows why; its log is {log}"
            )
        if time.monotonic() > until:
            raise Unavailable("the node did not start in time", hint=f"its log is {log}")
        time.sleep(_LOOK_S)
    return node


def _free_port() -> list[str]:
    """The option for a free port if another program listens on the usual one."""
    if "CREW_JOURNAL_HTTP" in os.environ:
        return []
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(USUAL_PLACE)
        except OSError:
            return ["--http", ANY_PORT]
    return []


def _last_error(log: Path) -> str:
    """The last error in the log of a node."""
    lines = log.read_text("utf-8", "replace").splitlines()
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return errors[-1] if errors else "its log has no error"


def down(data_dir: DataDir = None, json_output: Json = False) -> None:
    """Stop the node that runs on the data directory, as Ctrl-C does; its data stays."""
    folder = data_dir_of(data_dir)
    node = running_in(folder)
    if node is None:
        raise NotFound(
            f"no node runs on {folder.absolute()}", hint="`crew-journal config show` says which journal is used"
        )
    os.kill(node.pid, signal.SIGTERM)
    until = time.monotonic() + STOP_TIMEOUT_S
    while is_owned(folder):
        if time.monotonic() > until:
            raise Unavailable(f"the node (process {node.pid}) has not stopped yet", hint="wait, then look again")
        time.sleep(_LOOK_S)
    show({"stopped": node.pid}, json_output, lambda answer: print(f"stopped (process {answer['stopped']})"))


@contextmanager
def client(
    where: Where, *, embedder: str | None = None, create: bool = False, stay: bool = False
) -> Iterator[CrewJournal]:
    """A client of the service the options name; see :func:`target`."""
    with target(where, embedder=embedder, create=create, stay=stay) as there, sync_client(there) as journal:
        yield journal


def sync_client(there: Target) -> CrewJournal:
    """A client of ``there``; close it, or use it as a context manager."""
    from ..client import CrewJournal

    return CrewJournal(there.url, there.token)


def async_client(there: Target) -> AsyncCrewJournal:
    """The same for asyncio."""
    from ..client import AsyncCrewJournal

    return AsyncCrewJournal(there.url, there.token)


@contextmanager
def local_runtime(settings: Settings) -> Iterator[Runtime]:
    """The full runtime in a thread of this process; it is drained and stopped at the end of the block.

    Raises:
        Unavailable: If it does not start in time.
    """
    from anyio.from_thread import start_blocking_portal

    configure_logging(settings.log_level)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(_started(settings)) as runtime:
        yield runtime


@asynccontextmanager
async def _started(settings: Settings) -> AsyncIterator[Runtime]:
    from anyio import CancelScope, fail_after

    from ..runtime.node import Runtime

    runtime = Runtime(settings)
    try:
        try:
            with fail_after(START_TIMEOUT_S):
                await runtime.start()
        except TimeoutError:
            raise Unavailable(
                f"the journal in {settings.data_dir} did not start within {START_TIMEOUT_S:.0f} s",
                hint="run `crew-journal doctor`, or `crew-journal up` to see what takes so long",
            ) from None
        yield runtime
    finally:
        with CancelScope(shield=True):  # Ctrl-C cancels this task
            await runtime.stop()

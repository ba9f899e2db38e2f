"""Shell blocks as a person runs them: pasted into bash on a terminal of 80 columns."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import termios
from pathlib import Path
from threading import Timer

from support.cli import COMMAND, RUN_S, Done, environment
from support.nats import PROJECT

COLUMNS = 80
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
_STYLED = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_READ_BYTES = 65_536


def shell_blocks(page: str) -> list[str]:
    """The shell blocks of a page, ``README.md`` or ``docs/….md``."""
    return _BLOCK.findall((PROJECT / page).read_text("utf-8"))


def pasted(script: str, folder: Path, **env: str) -> Done:
    """Run ``script`` in ``folder``; stops at the first command that fails. ``out`` has no colours; ``err`` is empty."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    path = os.pathsep.join((str(Path(COMMAND).parent), os.environ["PATH"]))
    kept = {name: text for name, text in environment(**env).items() if name not in ("COLUMNS", "NO_COLOR", "CI")}
    bash = subprocess.Popen(
        [str(shutil.which("bash")), "-euo", "pipefail", "-c", script],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        cwd=folder,
        env={**kept, "PATH": path, "TERM": "xterm-256color"},
    )
    os.close(slave)
    limit = Timer(RUN_S, bash.kill)
    limit.start()
    printed = bytearray()
    with contextlib.suppress(OSError):  # EIO: every process on the terminal has ended
        while piece := os.read(master, _READ_BYTES):
            printed += piece
    os.close(master)
    code = bash.wait()
    limit.cancel()
    text = _STYLED.sub("", printed.decode()).replace("\r\n", "\n")
    assert "Traceback (most recent call last)" not in text, text
    return Done(code, text, "")

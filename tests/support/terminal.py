"""The shell blocks of a page as a person runs them: pasted one after another into bash on a terminal of 80 columns.

A comment before a block says what the test does with it: ``<!-- not run: REASON -->``, ``<!-- keeps running -->`` (until the
page ends; the next block is pasted when it has printed something) or ``<!-- exits CODE -->``. Without one, it exits with 0.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

from support.cli import COMMAND, RUN_S, end, environment
from support.nats import PROJECT

COLUMNS = 80
KEEPS_RUNNING = "keeps running"
_BLOCK = re.compile(
    r"(?:^<!-- (not run: [^\n]+|keeps running|exits \d+) -->\n)?^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE
)
_STYLED = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_SERVICE = re.compile(r"127\.0\.0\.1:(9119|922[01])\b")
"""Where the pages say that `up` listens."""
_READ_BYTES = 65_536


class Block(NamedTuple):
    """What one pastes at once; ``mark`` is what the comment before it says."""

    script: str
    mark: str

    @property
    def reason(self) -> str | None:
        """Why it is not run."""
        return self.mark.removeprefix("not run: ") if self.mark.startswith("not run: ") else None

    @property
    def code(self) -> int:
        """How its last command exits."""
        return int(self.mark.removeprefix("exits ")) if self.mark.startswith("exits ") else 0


def blocks(page: str) -> list[Block]:
    """The shell blocks of a page, ``README.md`` or ``docs/….md``."""
    return [Block(script, mark) for mark, script in _BLOCK.findall((PROJECT / page).read_text("utf-8"))]


@dataclass
class _Running:
    """A script on a terminal of its own, and what it has printed."""

    bash: subprocess.Popen[bytes]
    master: int
    printed: bytearray = field(default_factory=bytearray)
    begun: Event = field(default_factory=Event)

    def read(self) -> None:
        with contextlib.suppress(OSError):  # EIO: every process on the terminal has ended
            while piece := os.read(self.master, _READ_BYTES):
                self.printed += piece
                self.begun.set()
        self.begun.set()

    @property
    def text(self) -> str:
        return _STYLED.sub("", self.printed.decode()).replace("\r\n", "\n")


@dataclass(frozen=True, slots=True)
class Terminal:
    """Where the blocks of a page are pasted.

    Attributes:
        folder: Home and working directory.
        url: Address of the running service, in place of the one that the page names.
        words: What stands for the placeholders of the page.
        env: More of the environment.
    """

    folder: Path
    url: str
    words: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)

    def paste_page(self, page: str) -> list[tuple[str, str]]:
        """Paste the blocks that are run; each with what it printed.

        Raises:
            AssertionError: If a block exits with another code than the page says.
        """
        venv = self.folder / ".venv"
        if not venv.exists():
            venv.symlink_to(sys.prefix)
        printed = []
        with contextlib.ExitStack() as kept:
            for block in blocks(page):
                if block.reason:
                    continue
                script = self._adapted(block.script)
                if block.mark == KEEPS_RUNNING:
                    kept.enter_context(self._kept(script))
                    continue
                with self._started(script) as running:
                    code = running.bash.wait(RUN_S)
                assert code == block.code, f"{page}: exit code {code}, not {block.code}\n{script}\n{running.text}"
                assert "Traceback (most recent call last)" not in running.text, running.text
                printed.append((block.script, running.text))
        return printed

    def _adapted(self, script: str) -> str:
        script = _SERVICE.sub(self.url.removeprefix("http://"), script.replace("/tmp/", f"{self.folder}/"))
        for word, text in self.words.items():
            script = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", lambda _, text=text: text, script)
        return script

    @contextmanager
    def _kept(self, script: str) -> Iterator[None]:
        with self._started(f"exec {script}") as running:
            assert running.begun.wait(RUN_S), f"{script} prints nothing"
            assert running.bash.poll() is None, running.text
            yield
            end(running.bash)

    @contextmanager
    def _started(self, script: str) -> Iterator[_Running]:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        path = os.pathsep.join((str(Path(COMMAND).parent), os.environ["PATH"]))
        env = environment(HOME=str(self.folder), PATH=path, TERM="xterm-256color", **self.env)
        bash = subprocess.Popen(
            [str(shutil.which("bash")), "-euo", "pipefail", "-c", script],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            cwd=self.folder,
            env={name: text for name, text in env.items() if name not in ("COLUMNS", "NO_COLOR", "CI")},
        )
        os.close(slave)
        running = _Running(bash, master)
        reader = Thread(target=running.read)
        reader.start()
        try:
            yield running
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(bash.pid, signal.SIGKILL)
            reader.join()
            os.close(master)

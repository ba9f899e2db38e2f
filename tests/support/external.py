"""A nats-server that is not ours: its operator writes its configuration, as docs/operating.md says."""

from __future__ import annotations

import asyncio
import re
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.journal import eventually
from support.nats import PROJECT, nats_binary

from crew_journal.services.journal.broker.broker import free_port

BLOCK = re.compile(r"^    accounts \{\n(?:    .*\n)+?    \}\n", re.MULTILINE)


async def listens(port: int) -> bool:
    """Whether a nats-server greets on a port of this machine."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    try:
        return (await reader.readline()).startswith(b"INFO ")
    finally:
        writer.close()


@dataclass
class ExternalBroker:
    """A server of the configuration that operating.md shows; the journal's account, and what is added."""

    folder: Path
    port: int = field(default_factory=free_port)
    user: str = "crew-journal"
    password: str = "secret-of-the-operator"
    token: str | None = None
    """Asked for instead of user and password, and there are no accounts, if it is given."""
    accounts: list[str] = field(default_factory=list)
    process: Process | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / "nats.log"

    def write(self) -> None:
        """The configuration: the line of JOURNAL as the page has it, with our password, and the added accounts."""
        self.folder.mkdir(exist_ok=True)
        [block] = BLOCK.findall((PROJECT / "docs" / "operating.md").read_text("utf-8"))
        journal = next(line for line in block.splitlines() if line.strip().startswith("JOURNAL:"))
        accounts = "\n".join([journal.replace("…", self.password), *self.accounts])
        head = f'listen: "127.0.0.1:{self.port}"\nlog_file: "{self.log}"\njetstream {{store_dir: "{self.folder}"}}\n'
        who = f"accounts {{\n{accounts}\n}}" if self.token is None else f'authorization {{token: "{self.token}"}}'
        (self.folder / "nats.conf").write_text(f"{head}{who}\n", "utf-8")

    async def add_account(self, text: str) -> None:
        """Add an account as text of the configuration, and reload twice."""
        self.accounts.append(text)
        self.write()
        assert self.process is not None
        for times in (1, 2):
            self.process.send_signal(signal.SIGHUP)
            await eventually(lambda times=times: self._reloads() == times, f"reload {times}: {self.log.read_text()}")

    async def stop(self) -> None:
        """End it, if it runs."""
        assert self.process is not None
        if self.process.returncode is None:
            self.process.terminate()
            await self.process.wait()

    def _reloads(self) -> int:
        return self.log.read_text().count("Reloaded server configuration")


@asynccontextmanager
async def external_broker(folder: Path, **given: str) -> AsyncIterator[ExternalBroker]:
    """A running one below ``folder``, ended when the block is left."""
    broker = ExternalBroker(folder, **given)  # type: ignore[arg-type]  # its texts
    broker.write()
    broker.process = await asyncio.create_subprocess_exec(str(nats_binary().path), "-c", str(folder / "nats.conf"))
    try:
        while not await listens(broker.port):
            assert broker.process.returncode is None, broker.log.read_text()
            await asyncio.sleep(0.02)
        yield broker
    finally:
        await broker.stop()

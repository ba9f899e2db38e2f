"""A mirror of a directory on a real service, that can be killed at any step and started again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from support.stack import Stack

from crew_journal.schemas.documents.rules import Scope
from crew_journal.services.cli.mirror.folder import Folder, MirrorState
from crew_journal.services.cli.mirror.sync import Mirror, MirrorReport, MirrorService, Side
from crew_journal.services.client import CrewJournal

AGENT = "ada"
CREW = "core"
QUIET_PASSES = 20
"""Passes within which both sides have to be in step once nobody writes."""


class Killed(BaseException):
    """The mirror was killed; nothing of it may run afterwards."""


@dataclass
class Steps:
    """Counts the steps at which a mirror can be killed, and kills it at one of them."""

    kill_at: int | None = None
    taken: list[str] = field(default_factory=list)

    def step(self, name: str) -> None:
        self.taken.append(name)
        if self.kill_at is not None and len(self.taken) > self.kill_at:
            raise Killed(name)


@contextmanager
def steps(kill_at: int | None) -> Iterator[Steps]:
    """Let the mirror take ``kill_at`` steps: a write sent or answered, the state saved, a file linked or renamed."""
    counted = Steps(kill_at)

    def around(owner: Any, name: str) -> Any:
        original: Callable[..., Any] = getattr(owner, name)

        def stepping(*args: Any, **named: Any) -> Any:
            counted.step(f"before {name}")
            answer = original(*args, **named)
            counted.step(f"after {name}")
            return answer

        return patch.object(owner, name, stepping)

    with (
        around(MirrorService, "write"),
        around(MirrorState, "save"),
        around(os, "rename"),
        around(os, "link"),
        around(Folder, "keep_beside"),
    ):
        yield counted


@dataclass
class MirrorWorld:
    """A directory, and what keeps it in step."""

    base: Path
    journal: CrewJournal
    workspace: str = "acme"
    patient: bool = False
    lead: bool = True
    late_s: float = 60.0
    crew: str | None = CREW
    report: MirrorReport = field(default_factory=lambda: MirrorReport(lambda _line: None))
    mirror: Mirror | None = None

    @property
    def memory(self) -> Path:
        return self.base / ".memory"

    @property
    def crew_memory(self) -> Path:
        return self.base / "crew" / ".memory"

    def start(self) -> None:
        """A mirror that knows only what is on disk."""
        own = Folder(self.base, Scope.AGENT)
        own.make()
        sides = [Side(own, Scope.AGENT, f"a-{AGENT}", is_lead=False)]
        if self.crew:
            sides.append(Side(Folder(self.base / "crew", Scope.CREW), Scope.CREW, f"c-{self.crew}", is_lead=self.lead))
        state = MirrorState.load(own.root, f"agent {AGENT}")
        self.mirror = Mirror(tuple(sides), state, self.report, patient=self.patient, late_s=self.late_s)

    def sync(self, passes: int = 2) -> None:
        """Passes of the running mirror."""
        if self.mirror is None:
            self.start()
        assert self.mirror is not None
        owners = {"agent_id": AGENT} | ({"crew_id": self.crew} if self.crew else {})
        for _ in range(passes):
            self.mirror.run_pass(MirrorService(self.journal, owners, self.workspace))

    def sync_killed(self, kill_at: int) -> bool:
        """A pass that is killed at a step, and a mirror started after it; whether it was killed."""
        if self.mirror is None:
            self.start()
        killed = False
        with steps(kill_at):
            try:
                self.sync(1)
            except Killed:
                killed = True
        if killed:
            self.start()
        return killed

    def read(self, tier: str = "AGENT", key: str | None = None, scope: str = "agent") -> str:
        return self.journal.document_read(tier, key=key, **self.owner(scope)).content

    def write(self, mode: str, content: str, tier: str = "AGENT", key: str | None = None, **more: Any) -> int:
        scope = more.pop("scope", "agent")
        return self.journal.document_write(tier, mode, content, key=key, **self.owner(scope), **more).seq

    def texts(self, tier: str = "AGENT", key: str | None = None, scope: str = "agent") -> list[str]:
        """The text of every version, newest first."""
        named: dict[str, Any] = {"key": key, **self.owner(scope)}
        versions = self.journal.document_versions(tier, **named, limit=1000).versions
        return [self.journal.document_read(tier, version=version.seq, **named).content for version in versions]

    def owner(self, scope: str) -> dict[str, Any]:
        mine = {"agent_id": AGENT} if scope == "agent" else {"crew_id": self.crew or CREW}
        return {"scope": scope, "workspace_id": self.workspace, **mine}


_workspaces = iter(range(10_000))


async def played(stack: Stack, tmp_path: Path, play: Callable[[MirrorWorld], None], **options: object) -> None:
    """Play in a thread, because the client and the mirror block, in a workspace of its own."""
    workspace = f"acme{next(_workspaces)}"
    with stack.sync_client() as journal:
        world = MirrorWorld(tmp_path / "home", journal, workspace=workspace, **options)  # type: ignore[arg-type]
        await asyncio.to_thread(play, world)


def shell(text: str, path: Path) -> None:
    """``echo text >> path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(f"{text}\n")

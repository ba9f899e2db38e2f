"""``mirror``: an agent's documents as files, both ways, until it is stopped.

Invariant: while the service is unavailable, the directory is not changed; changes made meanwhile are synchronised when
it is back.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from ....schemas.core.errors import NotAllowed, NotFound, Unavailable
from ....schemas.documents.rules import Scope, owner_of
from ..commands import Argument, Option
from ..connection import client, resolve, sync_client
from ..options import Json, Where, Workspace
from ..output import print_pairs, say, show
from ..run import stopping

if TYPE_CHECKING:
    from ....schemas.access.operations import AgentAnswer
    from ...client import CrewJournal
    from .sync import Mirror, MirrorReport

INTERVAL_S: Final = 0.5
CREW_DIR: Final = "crew"
LEAD: Final = "lead"


def mirror(
    directory: Annotated[
        Path, Argument(metavar="DIR", file_okay=False, help="The agent's directory; files are in DIR/.memory.")
    ],
    agent: Annotated[str, Option("--agent", help="The agent.")],
    crew: Annotated[str | None, Option("--crew", help="Its crew, whose documents are mirrored, too.")] = None,
    crew_dir: Annotated[
        Path | None, Option("--crew-dir", file_okay=False, help="The crew's directory. [default: DIR/crew]")
    ] = None,
    lead: Annotated[
        bool, Option("--lead", help="The agent writes its crew's files; by default if it is registered as lead.")
    ] = False,
    once: Annotated[bool, Option("--once", help="Bring both sides in step once and exit.")] = False,
    interval: Annotated[float, Option("--interval", min=0.05, max=60, help="Seconds between two looks.")] = INTERVAL_S,
    workspace: Workspace = None,
    *,
    where: Where,
    json_output: Json = False,
) -> int:
    """Keep a directory of memory documents in step with the journal, both ways, until it is stopped.

    An agent writes with a shell (`echo … >> DIR/.memory/AGENT.md`); what changes in the journal appears as a file. With
    --once, the exit code is 1 if a file was refused.
    """
    from .folder import lock
    from .sync import MirrorReport

    report = MirrorReport()
    crew_base = None if crew is None else (crew_dir or directory / CREW_DIR)
    make = _maker(directory, crew_base, agent, crew, lead, workspace, report, patient=not once)
    folders = [(directory, Scope.AGENT)] + ([(crew_base, Scope.CREW)] if crew_base is not None else [])
    held = [lock(_memory(base, scope)) for base, scope in folders]
    try:
        if once:
            with client(where) as journal:
                make(journal)()
        else:
            _follow(where, directory, make, interval)
    finally:
        for descriptor in held:
            os.close(descriptor)
        summary = report.summary()
        show(summary, json_output, _print_summary)
    return int(once and bool(summary["refused"]))


def _memory(base: Path, scope: Scope) -> Path:
    from .folder import Folder

    folder = Folder(base, scope)
    folder.make()
    return folder.root


def _maker(
    directory: Path,
    crew_base: Path | None,
    agent: str,
    crew: str | None,
    lead: bool,
    workspace: str | None,
    report: MirrorReport,
    *,
    patient: bool,
) -> Callable[[CrewJournal], Callable[[], None]]:
    """A function that runs a pass over a connection; the first call creates the mirror."""
    from .folder import Folder, MirrorState
    from .sync import Mirror, MirrorService, Side

    mirrors: list[Mirror] = []

    def make(journal: CrewJournal) -> Callable[[], None]:
        owners = {"agent_id": agent} | ({"crew_id": crew} if crew is not None else {})
        documents = MirrorService(journal, owners, workspace)
        if not mirrors:
            registered = _registered(journal, agent, workspace)
            own = Folder(directory, Scope.AGENT)
            sides = [Side(own, Scope.AGENT, owner_of(Scope.AGENT, agent), is_lead=False)]
            if crew_base is not None:
                leads = lead or (registered is not None and registered.role == LEAD)
                sides.append(Side(Folder(crew_base, Scope.CREW), Scope.CREW, owner_of(Scope.CREW, crew), is_lead=leads))
            of = f"agent {agent}" + (f" of crew {crew}" if crew else "") + (f" in {workspace}" if workspace else "")
            mirrors.append(Mirror(tuple(sides), MirrorState.load(own.root, of), report, patient=patient))
        return lambda: mirrors[0].run_pass(documents)

    return make


def _registered(journal: CrewJournal, agent: str, workspace: str | None) -> AgentAnswer | None:
    """The registration of the agent; None if it is not registered.

    Raises:
        NotAllowed: If the agent's memory is off.
    """
    try:
        agent_answer = journal.agent(agent, workspace_id=workspace)
    except NotFound:
        return None
    if not agent_answer.memory_enabled:
        raise NotAllowed(
            f"the memory of agent {agent} is off", hint=f"turn it on: crew-journal agent update {agent} --memory"
        )
    return agent_answer


def _follow(where: Where, directory: Path, make: Callable[[CrewJournal], Callable[[], None]], interval: float) -> None:
    """Run passes until a signal to stop comes."""
    stopped, down, begun = threading.Event(), False, False
    with stopping(stopped):
        while not stopped.is_set():
            try:
                there = resolve(where)
                if there is None:
                    raise Unavailable(f"no `up` runs on {where.folder}")
                with sync_client(there) as journal:
                    run = make(journal)
                    while not stopped.is_set():
                        run()
                        if not begun:
                            say(f"{directory} is in step with the journal and stays so until Ctrl-C")
                            begun = True
                        if down:
                            say("the service answers again: caught up")
                            down = False
                        stopped.wait(interval)
            except Unavailable as error:
                if not down:
                    say(f"{error.message}; files are taken over once it answers")
                    down = True
                stopped.wait(interval)


def _print_summary(summary: Mapping[str, Any]) -> None:
    """Figures on stdout, conflicts and refusals on stderr."""
    print_pairs((name, value) for name, value in summary.items() if isinstance(value, int))
    for conflict in summary["conflicts"]:
        say(f"conflict: {conflict['file']}, kept as {conflict['kept_as']}")
    for conflict in summary["refused"]:
        say(f"refused: {conflict['file']}: {conflict['why']}")

"""``mcp``: the memory as tools of the Model Context Protocol, over stdin and stdout.

Invariant: it holds no state; a node that it starts keeps running after it ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Annotated, Any, Final

from ...schemas.core.errors import CrewJournalError, NotFound
from ..client.find import ServiceAddress, find
from ..client.isolation import CLI_MODULE, isolated_python
from ..client.mcp_proxy import Proxy, Unreachable
from ..client.project import claim_journal, project_of
from .commands import Option
from .configuration import environment_elsewhere
from .options import Json, Where

START_TIMEOUT_S: Final = 60.0
"""Seconds until a node that was started must answer; usually under 4."""
_LOOK_S: Final = 0.1
_LOG_FILE: Final = "up.log"
_APART_ON_WINDOWS: Final = 0x0000_0208
"""DETACHED_PROCESS and CREATE_NEW_PROCESS_GROUP, which ``subprocess`` names on Windows only."""


def mcp(
    tools: Annotated[
        str, Option("--tools", help="Toolsets, separated by commas: core, crew, operator.", metavar="NAMES")
    ] = "core",
    agent: Annotated[
        str | None, Option("--agent", help="Agent whose memory it is, for an OWNER or ADMIN token.")
    ] = None,
    crew: Annotated[str | None, Option("--crew", help="Its crew, for an OWNER or ADMIN token.")] = None,
    project: Annotated[
        str | None,
        Option(
            "--project", metavar="PROGRAM", help="Agent and crew follow from the program and this folder's repository."
        ),
    ] = None,
    lead: Annotated[bool, Option("--lead", help="The agent leads its crew.")] = False,
    workspace: Annotated[
        str | None, Option("--workspace", "-w", help="Workspace, for a token of all workspaces.")
    ] = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Serve the memory as tools to a program that speaks the Model Context Protocol on stdin and stdout.

    Forwards to the running service. If none runs on the data directory, starts one, which keeps running.
    """
    role = "lead" if lead else None
    if project is not None:
        named_by = project_of(Path.cwd(), project)
        agent, crew, workspace = agent or named_by.agent, crew or named_by.crew, workspace or named_by.workspace
    named = {"tools": tools, "agent_id": agent, "crew_id": crew, "role": role, "workspace_id": workspace}
    named["notes"] = None if project is None else "false"  # the program's hooks already inject the whole block
    starting = threading.Lock()

    def address() -> ServiceAddress:
        with starting:
            try:
                return find(where.url, where.bearer, None if where.url else where.folder)
            except NotFound:
                if where.url:
                    raise Unreachable("no service is there") from None
            except CrewJournalError as error:
                raise Unreachable(str(error)) from None
            start_node(where.folder)
            try:
                return find(None, where.bearer, where.folder)
            except CrewJournalError as error:
                raise Unreachable(str(error)) from None

    query = {name: value for name, value in named.items() if value}
    Proxy(address, query, sys.stdout.buffer).run(sys.stdin.buffer)


def start_node(data_dir: Path) -> None:
    """Start ``up`` on a data directory, in the background, and wait until it answers.

    Raises:
        Unreachable: If it ends, or does not answer in time; its log says why.
    """
    data_dir = data_dir.absolute()
    claim_journal(data_dir)
    log = data_dir / _LOG_FILE
    apart: dict[str, Any] = (
        {"creationflags": _APART_ON_WINDOWS} if sys.platform == "win32" else {"start_new_session": True}
    )
    command = [*isolated_python(), "-m", CLI_MODULE, "up", "--data-dir", str(data_dir)]
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(log, flags, 0o600), "ab") as out:
        node = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=data_dir,
            env=environment_elsewhere(),
            **apart,
        )
    until = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until:
        try:
            find(None, None, data_dir)
        except CrewJournalError:
            if node.poll() is not None and not _is_up(data_dir):
                raise Unreachable(f"the node did not start; see {log.name} in the data directory") from None
            time.sleep(_LOOK_S)
        else:
            return
    raise Unreachable("the node did not start in time")


def _is_up(data_dir: Path) -> bool:
    """Whether another process started the node meanwhile."""
    time.sleep(_LOOK_S)
    return (data_dir / "runtime.json").exists()

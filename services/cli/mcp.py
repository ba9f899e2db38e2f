"""``mcp``: the memory as tools of the Model Context Protocol, over stdin and stdout.

Invariant: it holds no state; a node that it starts keeps running after it ends.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Annotated

from ...schemas.core.errors import CrewJournalError, NotFound
from ..client.find import ServiceAddress, find
from ..client.mcp_proxy import Proxy, Unreachable
from ..client.project import project_of
from .commands import Option
from .connection import start_node
from .options import Json, Where


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
            try:
                start_node(where.folder)
                return find(None, where.bearer, where.folder)
            except CrewJournalError as error:
                raise Unreachable(str(error)) from None

    query = {name: value for name, value in named.items() if value}
    Proxy(address, query, sys.stdout.buffer).run(sys.stdin.buffer)

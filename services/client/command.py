"""The command ``crew-journal-client``: ``hook``, ``mcp`` and ``trust`` without the service's libraries.

A coding agent on a different machine than the node needs nothing else. Invariant: standard library only.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from .find import ServiceAddress, address_of, find, located_context

DEFAULT_PROGRAM: Final = "claude-code"


def main(argv: list[str] | None = None, name: str = "crew-journal-client") -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(prog=name, description="Memory of a Crew Journal that runs elsewhere.")
    commands = parser.add_subparsers(dest="command", required=True)
    hook = commands.add_parser("hook", help="serve an event of a coding agent: JSON on stdin, JSON on stdout")
    hook.add_argument(
        "event",
        help="SessionStart, UserPromptSubmit, Stop, PreCompact or SessionEnd; its JSON object is read from stdin",
    )
    hook.add_argument("--program", default=DEFAULT_PROGRAM, help="claude-code, codex or cursor")
    mcp = commands.add_parser("mcp", help="serve the memory as tools of the Model Context Protocol on stdin and stdout")
    mcp.add_argument("--url", help="of the service; CREW_JOURNAL_URL if absent")
    mcp.add_argument("--token", help="CREW_JOURNAL_TOKEN if absent")
    mcp.add_argument("--tools", default="core", help="toolsets, separated by commas: core, crew, operator")
    mcp.add_argument("--agent", help="agent whose memory it is, for an OWNER or ADMIN token")
    mcp.add_argument("--crew", help="its crew, for an OWNER or ADMIN token")
    mcp.add_argument("--project", metavar="PROGRAM", help="agent and crew follow from the program and this repository")
    mcp.add_argument("--lead", action="store_true", help="the agent leads its crew")
    mcp.add_argument("--workspace", help="workspace, for a token of all workspaces")
    for verb, meaning in (
        ("trust", "use the journal or the settings that are found in a folder"),
        ("untrust", "do not use the journal of a folder, or ignore its settings"),
    ):
        command = commands.add_parser(verb, help=meaning)
        command.add_argument(
            "path", nargs="?", default=".", help="the folder, or the place in it; the current folder if absent"
        )
    for command in (hook, mcp):
        command.add_argument("--data-dir", help="data directory of the journal")
        command.add_argument("--journal", help="context that names the journal")
    given = parser.parse_args(argv)
    if given.command in ("trust", "untrust"):
        return _consent(given.command, Path(given.path))
    if given.command == "hook":
        from .hook import run

        named = {"--data-dir": given.data_dir, "--journal": given.journal}
        return run(given.event, given.program, place={name: value for name, value in named.items() if value})
    return _mcp(given)


def _consent(verb: str, path: Path) -> int:
    from ...schemas.core.errors import CrewJournalError
    from .project import trust, untrust

    try:
        chosen = (trust if verb == "trust" else untrust)(path)
    except CrewJournalError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"{verb}ed: the {chosen.kind} in {chosen.shown}")
    return 0


def _mcp(namespace: argparse.Namespace) -> int:
    from ...schemas.core.errors import CrewJournalError
    from .mcp_proxy import Proxy, Unreachable
    from .project import project_of

    agent, crew, workspace = namespace.agent, namespace.crew, namespace.workspace
    if namespace.project:
        try:
            named = project_of(Path.cwd(), namespace.project)
        except CrewJournalError as error:
            print(f"error: {error}", file=sys.stderr)
            return error.exit_code
        agent, crew, workspace = agent or named.agent, crew or named.crew, workspace or named.workspace
    role = "lead" if namespace.lead else None
    query = {"tools": namespace.tools, "agent_id": agent, "crew_id": crew, "role": role, "workspace_id": workspace}
    query["notes"] = "false" if namespace.project else None  # the program's hooks already inject the whole block

    def address() -> ServiceAddress:
        try:
            if namespace.journal:
                return address_of(located_context(namespace.journal), namespace.token)
            return find(namespace.url, namespace.token, namespace.data_dir)
        except CrewJournalError as error:
            raise Unreachable(str(error)) from None

    Proxy(address, {name: value for name, value in query.items() if value}, sys.stdout.buffer).run(sys.stdin.buffer)
    return 0

"""``nudges``: what an orchestrator is to tell an agent in the user turn of a session.

Invariant: what is printed was recorded as offered; asking again in the same session prints nothing.
"""

from __future__ import annotations

from typing import Annotated

import typer

from crew_journal.services.cli.groups import grouped
from crew_journal.services.cli.options import Json, MinSeq, Where, Workspace


@grouped
def nudges(
    session: Annotated[str, typer.Argument(help="The session; each kind of nudge is offered to it once.")],
    agent: Annotated[str | None, typer.Option("--agent", help="Which agent, for tokens that may choose.")] = None,
    min_seq: MinSeq = None,
    workspace: Workspace = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Print the nudges that are due for a session, a line each, marked for the user turn."""
    from crew_journal.services.cli.connection import client
    from crew_journal.services.cli.output import emit, plain, safe, say

    with client(where) as journal:
        found = [
            plain(nudge) for nudge in journal.nudges(session, agent_id=agent, workspace_id=workspace, min_seq=min_seq)
        ]
    if json_output:
        emit({"nudges": found})
        return
    for nudge in found:
        print(safe(nudge["text"]))
    if not found:
        say("no nudge is due, or this session has had it")

"""``remember``: stores a text, wherever it belongs.

Invariant: each kind of memory is written by its own operation, whose fields are the options that apply to it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import click

from ...schemas.entries.operations import REMEMBER
from ..client.project import project_without_question, root_of
from .commands import Argument, Option
from .connection import client
from .options import Fields, Json, Where
from .output import say, show
from .printers import PRINTERS, documents_print_written, print_fields

STDIN: Final = "-"
_FACT_PARTS: Final = 3
Place = Literal["entry", "AGENT", "CREW", "daily", "drawer", "fact"]
_OWN: Final[dict[str, frozenset[str]]] = {
    "AGENT": frozenset({"agent_id", "crew_id", "workspace_id", "data_subject_id"}),
    "CREW": frozenset({"agent_id", "crew_id", "workspace_id", "data_subject_id"}),
    "daily": frozenset({"agent_id", "crew_id", "workspace_id"}),
    "drawer": frozenset({"workspace_id"}),
    "fact": frozenset({"workspace_id"}),
}
"""Fields of ``remember`` that the other kinds of memory have, too."""


def remember(
    words: Annotated[
        list[str],
        Argument(metavar="TEXT|-", help="The text, or - for stdin; with --to fact: SUBJECT PREDICATE OBJECT."),
    ],
    fields: Annotated[dict[str, Any], Fields(REMEMBER, without=("text",))],
    to: Annotated[
        Place, Option("--to", help="Where it belongs: the journal, or a memory document, a drawer, the graph of facts.")
    ] = "entry",
    wing: Annotated[str | None, Option("--wing", help="With --to drawer: its wing; the agent if left out.")] = None,
    room: Annotated[str, Option("--room", help="With --to drawer: its room.")] = "notes",
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Remember a text, so that recall finds it by its words and by its meaning.

    With --to AGENT or CREW it is appended to that memory document, with daily to today's log; drawer files it in the palace,
    fact adds it to the knowledge graph. In a repository it is for the sessions there, if neither agent nor crew is named.
    If no node runs on your own journal, one is started in the background.
    """
    for name in fields if to != "entry" else ():
        if name not in _OWN[to]:
            option = name.removesuffix("_id").replace("_", "-")
            raise click.BadParameter(f"does not go with --to {to}", param_hint=f"--{option}")
    if to == "fact" and len(words) != _FACT_PARTS:
        raise click.BadParameter(
            'write `--to fact SUBJECT PREDICATE OBJECT`, as in: Maria speaks "Swiss German"', param_hint="TEXT"
        )
    text = sys.stdin.read().rstrip("\n") if words == [STDIN] else " ".join(words)
    if not text.strip():
        raise click.BadParameter("is empty: give a text, or - to read it from stdin", param_hint="TEXT")
    if to == "entry" and not fields.keys() & {"agent_id", "crew_id"} and where == Where():
        fields = _of_this_repository() | fields
    with client(where, create=True, stay=True) as journal:
        answer: Any
        if to == "entry":
            answer = journal.remember(text, **fields)
        elif to == "fact":
            answer = journal.kg_add(*words, **fields)
        elif to == "drawer":
            answer = journal.add_drawer(wing or fields.get("agent_id") or "notes", room, text, **fields)
        elif to == "daily":
            answer = journal.append_daily(text, **fields)
        else:
            answer = journal.document_write(to, "append", text, **fields)
    show(answer, json_output, _PRINTERS[to])


def _of_this_repository() -> dict[str, str]:
    """The crew and workspace of the sessions in this repository, so that they recall what a person remembers there."""
    here = Path.cwd()
    if not (root_of(here) / ".git").exists():
        return {}
    project = project_without_question(here, "")
    say(f"for the sessions in this repository (crew {project.crew}); --crew names another")
    return {"crew_id": project.crew} | ({"workspace_id": project.workspace} if project.workspace else {})


_PRINTERS: Final = {
    "entry": PRINTERS.get("remember", print_fields),
    "AGENT": documents_print_written,
    "CREW": documents_print_written,
    "daily": PRINTERS.get("append_daily", print_fields),
    "drawer": PRINTERS.get("add_drawer", print_fields),
    "fact": PRINTERS.get("kg_add", print_fields),
}

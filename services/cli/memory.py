"""``memory``: the documents of an agent, its crew or the workspace.

Invariant: the text of a write is an argument, a file or stdin, and is sent as it is.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import click

from ...schemas.operations.documents import DOCUMENT_WRITE
from .commands import Argument, CommandGroup, Option
from .connection import client
from .documents import print_written
from .foreign_files import file_at, text_of
from .memory_block import block
from .memory_search import reindex, search
from .options import Json, Where
from .output import show
from .request_options import Fields

memory = CommandGroup(help="Memory documents: AGENT.md, daily logs, topics, pins …")
memory.command("search")(search)
memory.command("reindex")(reindex)
memory.command("block")(block)


@memory.command("write")
def write(
    fields: Annotated[dict[str, Any], Fields(DOCUMENT_WRITE, without=("content", "source"))],
    content: Annotated[
        str | None,
        Argument(metavar="[CONTENT]", help="The text, - for stdin; -- before a text that begins with a hyphen."),
    ] = None,
    file: Annotated[
        Path | None, Option("--file", exists=True, dir_okay=False, help="File that holds the text.")
    ] = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Write a memory document; returns once the write is durable and can be read."""
    if (content is None) == (file is None):
        raise click.BadParameter("give the text, or - for stdin, or --file", param_hint="CONTENT")
    text = content or ""
    if file is not None:
        text = text_of(file_at(file))
    elif content == "-":
        text = sys.stdin.read()
    with client(where) as journal:
        answer = journal.document_write(content=text, **fields)
    show(answer, json_output, print_written)

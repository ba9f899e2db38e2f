"""``memory``: the documents of an agent, its crew or the workspace.

Invariant: the text of a write is an argument, a file or stdin, and is sent as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import click

from ...schemas.context.operations import MEMORY_BLOCK
from ...schemas.documents.operations import (
    DOCUMENT_REINDEX,
    DOCUMENT_SEARCH,
    DOCUMENT_WRITE,
    SEARCH_LIMIT_DEFAULT,
    SEARCH_LIMIT_MAX,
)
from ...schemas.documents.rules import Scope, tier_of_label
from ..printable import safe
from .commands import Argument, CommandGroup, Option
from .connection import client
from .foreign_files import file_at, text_of
from .options import Fields, Json, Where
from .output import print_pairs, print_table, say, shares, show
from .printers import documents_print_written, print_memory_block

if TYPE_CHECKING:
    from ..documents.owned import OwnedDocuments


# ``memory search`` and ``memory reindex``: of a running service, or of a directory without one.
#
# Invariant: with ``--path`` nothing but the directory is read; without it, the service decides what may be read.


Directory = Annotated[
    Path | None,
    Option("--path", "-p", file_okay=False, help="Directory with the documents, or with .memory; no service is asked."),
]
Format = Annotated[Literal["table", "json"], Option("--format", "-F", help="How hits are printed.")]


def search(
    asked: Annotated[dict[str, Any], Fields(DOCUMENT_SEARCH, without=("limit", "scope", "tier"))],
    path: Directory = None,
    scope: Annotated[
        Literal["agent", "crew", "both"],
        Option("--scope", "-S", help="Whose documents, whatever --crew says; both without --path only."),
    ] = "agent",
    limit: Annotated[int, Option("--limit", "-l", min=1, max=SEARCH_LIMIT_MAX, help="Most hits.")] = (
        SEARCH_LIMIT_DEFAULT
    ),
    format_: Format = "table",
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Search memory documents, best first: of the service, or with --path of a directory.

    Of a directory, .md files are read that are neither hidden nor links.
    """
    answer: Any
    if path is not None:
        from .directory_index import MemoryDirectory

        directory = MemoryDirectory(path, _one(scope))
        hits = [asdict(hit) for hit in directory.search(asked["query"], limit)]
        answer = {"results": hits, "count": len(hits), "quarantined": directory.quarantined}
    else:
        with client(where, embedder="auto") as journal:
            answer = journal.document_search(**asked, limit=limit, scope=scope)
    show(answer, json_output or format_ == "json", print_hits)


def reindex(
    asked: Annotated[dict[str, Any], Fields(DOCUMENT_REINDEX, without=("scope", "min_seq"))],
    path: Directory = None,
    scope: Annotated[Literal["agent", "crew"], Option("--scope", "-S", help="Whose documents.")] = "agent",
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Load the search index of memory documents again, or with --path read a directory; says what was read.

    The service's index follows every write by itself, and a directory is read at each search: this is never needed.
    """
    answer: Any
    if path is not None:
        from .directory_index import MemoryDirectory

        answer = MemoryDirectory(path, scope).status()
    else:
        with client(where) as journal:
            answer = journal.document_reindex(**asked, scope=scope)
    show(answer, json_output, lambda state: print_pairs(state.items()))


def _one(scope: str) -> str:
    if scope == "both":
        raise click.BadParameter("a directory is of an agent or of a crew", param_hint="--scope")
    return scope


def print_hits(answer: Mapping[str, Any]) -> None:
    """Print a table of the hits on stdout, and the labels of blocked documents on stderr."""
    rows = [
        (share, hit["source"], f"{hit['file']}:{hit['line']}", hit["heading"], _one_line(hit))
        for share, hit in zip(shares(answer["results"]), answer["results"], strict=True)
    ]
    print_table(("score", "source", "where", "heading", "text"), rows, right=("score",), empty="nothing was found")
    for label in answer["quarantined"]:
        say(f"blocked by the injection scanners, not searched: {safe(label)}")


def _one_line(hit: Mapping[str, Any]) -> str:
    return " ".join(str(hit["snippet"]).split())


# ``memory block``: of a running service, or of a directory without one.


_OF_THE_SERVICE: Final = ("query", "remembered_tokens", "as_of", "min_seq")


def block(
    fields: Annotated[dict[str, Any], Fields(MEMORY_BLOCK)],
    path: Annotated[
        Path | None,
        Option("--path", "-p", file_okay=False, help="Directory of a mirror, with .memory; no service is asked."),
    ] = None,
    crew_dir: Annotated[
        Path | None, Option("--crew-dir", file_okay=False, help="With --path, the crew's. [default: PATH/crew]")
    ] = None,
    lead: Annotated[bool, Option("--lead", help="With --path, that the agent is the lead of its crew.")] = False,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Build the memory block for an agent's prompt: of the service, or with --path of a directory.

    Text that the injection scanners block is replaced by a notice. A directory has no memory of the workspace and no
    registration: the budget is --max-chars or 15,000 characters, and topics are not ranked.
    """
    answer: Any
    if path is None:
        with client(where) as journal:
            answer = journal.memory_block(**fields)
    else:
        for name in _OF_THE_SERVICE:
            if name in fields:
                raise click.BadParameter("a directory cannot answer this", param_hint="--" + name.replace("_", "-"))
        answer = block_of_directory(path, crew_dir or path / "crew", fields, lead=lead)
    show(answer, json_output, print_memory_block)


def block_of_directory(path: Path, crew_dir: Path, fields: dict[str, Any], *, lead: bool) -> dict[str, Any]:
    """The block, with the fields of the service's answer.

    Raises:
        click.BadParameter: If the agent is missing.
    """
    from ...schemas.context.memory_block import BUDGET_DEFAULT, build_memory_block
    from ...schemas.core.limits import DEFAULT_WORKSPACE
    from ...schemas.core.principal import Principal, Role
    from ..context.block import BlockState, block_input
    from ..desk import Caller
    from ..documents.learned import Opener
    from ..documents.owned import OwnedDocuments

    agent, crew = fields.get("agent_id"), fields.get("crew_id")
    if agent is None:
        raise click.BadParameter("name the agent of the directory", param_hint="--agent")
    if lead and crew is None:
        raise click.BadParameter("name the crew that it leads", param_hint="--crew")
    workspace = fields.get("workspace_id") or DEFAULT_WORKSPACE
    role = Role.LEAD if lead else Role.AGENT
    principal = Principal(token_id="directory", role=role, workspace_id=workspace, agent_id=agent, crew_id=crew)
    own = _documents(path, Scope.AGENT)
    of_crew = OwnedDocuments() if crew is None else _documents(crew_dir, Scope.CREW)
    opener = fields.get("opener")
    opened = None if opener is None else Opener(opener, slug=opener)  # models and cards are not in directories
    state = BlockState(datetime.now(UTC).date(), None, frozenset(), own, of_crew, OwnedDocuments(), opener=opened)
    given = block_input(Caller.of(principal), state, agent, crew)
    block = build_memory_block(given, fields.get("max_chars", BUDGET_DEFAULT))
    sections = [
        {name: getattr(section, name) for name in ("block", "name", "label", "chars", "cut", "blocked")}
        for section in block.sections
    ]
    return {"text": block.text, "memory_enabled": True, "sections": sections, "usage": block.usage}


def _documents(base: Path, scope: Scope) -> OwnedDocuments:
    """The documents of a folder; files that a mirror would refuse are left out and reported."""
    from ...schemas.text.injection import finding_in
    from ..documents.owned import DocumentText, OwnedDocuments
    from .mirror.folder import Folder, UnreadableFile

    folder, owned = Folder(base, scope), OwnedDocuments()
    if not folder.root.is_dir() or folder.root.is_symlink():
        return owned
    for label in sorted(folder.scan().files):
        tier, key = tier_of_label(label) or ("", None)
        try:
            text = folder.read(label)[1].decode()
        except UnreadableFile as error:
            say(f"{folder.path_of(label)}: {error}")
        else:
            owned.rows[tier, key] = DocumentText(text, finding_in(text), 0)
    return owned


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
    show(answer, json_output, documents_print_written)

"""``memory search`` and ``memory reindex``: of a running service, or of a directory without one.

Invariant: with ``--path`` nothing but the directory is read; without it, the service decides what may be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import click

from ...schemas.documents.operations import DOCUMENT_REINDEX, DOCUMENT_SEARCH, SEARCH_LIMIT_DEFAULT, SEARCH_LIMIT_MAX
from ..printable import safe
from .commands import Option
from .connection import client
from .options import Json, Where
from .output import print_pairs, print_table, say, show
from .request_options import Fields

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
        (f"{hit['score']:.3f}", hit["source"], f"{hit['file']}:{hit['line']}", hit["heading"], _one_line(hit))
        for hit in answer["results"]
    ]
    print_table(("score", "source", "where", "heading", "text"), rows, right=("score",), empty="nothing was found")
    for label in answer["quarantined"]:
        say(f"blocked by the injection scanners, not searched: {safe(label)}")


def _one_line(hit: Mapping[str, Any]) -> str:
    return " ".join(str(hit["snippet"]).split())

"""``forget``: shows what an erasure would remove, then erases it and waits for the receipt."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any, Final

import click

from ...schemas.core.errors import InvalidQuery, Unavailable
from ..printable import safe
from .commands import Argument, Option
from .connection import client
from .options import Json, Where, Workspace
from .output import counted, print_pairs, say, show

_DRY_RUN: Final = "dry run"
"""Reason of a request that changes nothing, if none is given."""
POLL_S: Final = 0.2
"""Seconds between looks at an erasure: the views of 100,000 entries are folded again in about 20 s."""


def forget(
    named: Annotated[
        list[str] | None, Argument(metavar="[ID]…", help="Entries or document writes; drawer:ID, fact:ID.")
    ] = None,
    ids: Annotated[
        list[str] | None, Option("--id", help="Entry or document write, `drawer:ID`, `fact:ID`; repeatable.")
    ] = None,
    subject: Annotated[str | None, Option("--subject", help="`data_subject_id` of a person.")] = None,
    author: Annotated[
        str | None, Option("--author", help="`actor_id` of a person or `agent_id` of an agent: all that they wrote.")
    ] = None,
    source: Annotated[
        str | None,
        Option(
            "--source",
            help="Where it came from: `refs.imported_from` (slack, chatgpt …), a drawer's "
            "`imported_from` or `source_file`, a document's `source`.",
        ),
    ] = None,
    prove: Annotated[
        str | None,
        Option("--prove", metavar="TEXT", help="Erase nothing; show where files and views of the node hold this text."),
    ] = None,
    reason: Annotated[str, Option("--reason", help="The reason; it is recorded.")] = "",
    yes: Annotated[bool, Option("--yes", help="Erase. Without it, only what would go is shown.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only show what would go, as without --yes.")] = False,
    workspace: Workspace = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Erase entries, or all of a person, an author or a source, with all that was made of them; print the receipt.

    Give ids, or exactly one of --subject, --author and --source. Without --yes nothing is changed: the command says what
    would go. An erasure cannot be undone.
    """
    if prove is not None:
        with client(where) as journal:
            show(journal.prove_erased(prove), json_output, _traces)
        return
    if yes and dry_run:
        raise click.BadParameter("does not go with --yes", param_hint="--dry-run")
    if yes and not reason.strip():
        raise InvalidQuery("an erasure needs a reason", hint="--reason 'asked by the person on …'", field="reason")
    chosen = (*(named or ()), *(ids or ()))
    if [bool(chosen), subject is not None, author is not None, source is not None].count(True) != 1:
        raise click.BadParameter(
            "name what to forget: ID… of entries, or exactly one of --subject, --author and --source", param_hint="ID"
        )
    with client(where) as journal:
        planned = journal.forget(
            reason if yes else reason.strip() or _DRY_RUN,
            ids=chosen,
            subject=subject,
            author=author,
            source=source,
            dry_run=not yes,
            workspace_id=workspace,
        )
        if planned.erasure_id is None:
            show(planned, json_output, _planned)
            return
        if not json_output:
            say(f"erasing {counted(planned.messages, 'message')}; the views are folded again …")
        erasure = journal.erasure(planned.erasure_id, min_seq=planned.seq, workspace_id=workspace)
        while erasure.state != "completed" and not erasure.failed:
            time.sleep(POLL_S)
            erasure = journal.erasure(planned.erasure_id, workspace_id=workspace)
    show(erasure, json_output, _receipt)
    if failed := {**planned.failed, **erasure.failed}:
        raise Unavailable(
            "; ".join(f"{store}: {why}" for store, why in failed.items()),
            hint="the next start of the node, or the same command, tries again",
        )


def _traces(found: Mapping[str, Any]) -> None:
    print_pairs((*found["files"].items(), *found["views"].items()))
    if not found["files"] and not found["views"]:
        print("not found in any file or view of the node")
    models = ", ".join(found["models"])
    print(f"compared vectors of: {models}" if models else "no vectors were compared: no embedding model answers")


def _planned(answer: Mapping[str, Any]) -> None:
    print_pairs(
        [("messages", answer["messages"]), *((f"  {name}", count) for name, count in answer["by_type"].items())]
    )
    for title, counts in (("by family", answer["by_family"]), ("by store", answer["stores"])):
        print(title)
        print_pairs((f"  {name}", count) for name, count in counts.items())
    print("for example")
    for example in answer["examples"]:
        stays = f"  ({example['remaining_sources']} other sources stay)" if example["remaining_sources"] else ""
        print(safe(f"  {example['seq']:>8}  {example['what']}  {example['id'] or ''}{stays}"))
    for kind, by in answer["recomputed"].items():
        print(f"recomputed from the sources that stay: {kind}, by {by}")
    _not_proven(answer)
    print("nothing was changed; add --yes to erase")


def _receipt(erasure: Mapping[str, Any]) -> None:
    print_pairs(
        [("erasure", erasure["erasure_id"]), ("completed", erasure["completed_at"]), *erasure["counts"].items()]
    )
    _not_proven(erasure)


def _not_proven(answer: Mapping[str, Any]) -> None:
    print("not reached by an erasure:")
    for what in answer["not_proven"]:
        print(f"  - {what}")

"""``forget``: shows what an erasure would remove, then erases it and waits for the receipt."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any, Final

from ...schemas.core.errors import InvalidQuery, Unavailable
from .commands import Option
from .connection import client
from .options import Json, Where, Workspace
from .output import print_pairs, say, show

POLL_S: Final = 0.2
"""Seconds between looks at an erasure: the views of 100,000 entries are folded again in about 20 s."""


def forget(
    ids: Annotated[
        list[str] | None, Option("--id", help="Entry or document write, `drawer:ID`, `fact:ID`; repeatable.")
    ] = None,
    subject: Annotated[str | None, Option("--subject", help="`data_subject_id` of a person.")] = None,
    reason: Annotated[str, Option("--reason", help="The reason; it is recorded.")] = "",
    yes: Annotated[bool, Option("--yes", help="Erase. Without it, only what would go is shown.")] = False,
    workspace: Workspace = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Erase entries or all of a person, with everything that was made of them, and print the receipt.

    Without --yes nothing is changed: the command says what would go. An erasure can not be undone.
    """
    if not reason.strip():
        raise InvalidQuery("an erasure needs a reason", hint="--reason 'asked by the person on …'", field="reason")
    with client(where) as journal:
        planned = journal.forget(reason, ids=tuple(ids or ()), subject=subject, dry_run=not yes, workspace_id=workspace)
        if planned.erasure_id is None:
            show(planned, json_output, _planned)
            return
        if not json_output:
            say(f"erasing {planned.messages:,} messages; the views are folded again …")
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


def _planned(answer: Mapping[str, Any]) -> None:
    print_pairs([("messages", answer["messages"]), *answer["by_type"].items()])
    for example in answer["examples"]:
        say(f"  {example['seq']:>8}  {example['what']}  {example['id'] or ''}")
    _not_proven(answer)
    say("nothing was changed; add --yes to erase")


def _receipt(erasure: Mapping[str, Any]) -> None:
    print_pairs(
        [("erasure", erasure["erasure_id"]), ("completed", erasure["completed_at"]), *erasure["counts"].items()]
    )
    _not_proven(erasure)


def _not_proven(answer: Mapping[str, Any]) -> None:
    say("not reached by an erasure:")
    for what in answer["not_proven"]:
        say(f"  - {what}")

"""``list``, ``get`` and ``tail``: reading the journal itself, with every filter of the contract.

Invariant: an option is one filter of ``GET /v1/journal`` by the same meaning; the service judges its values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from ..times import moment_of
from .commands import Argument, Option
from .connection import client
from .options import Json, MinSeq, Where, Workspace
from .output import emit, plain, print_entry, print_pairs, say, show

if TYPE_CHECKING:
    from ...schemas.api import TailGap

Texts = list[str] | None


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of the journal under the names that HTTP has for them; an empty one filters nothing."""

    crew_ids: Annotated[Texts, Option("--crew", help="Any of these crews (repeatable).")] = None
    agent_ids: Annotated[Texts, Option("--agent", help="Any of these agents (repeatable).")] = None
    mission_id: Annotated[str | None, Option("--mission", help="This mission.")] = None
    trace_id: Annotated[str | None, Option("--trace", help="This run or session.")] = None
    actor_id: Annotated[str | None, Option("--actor", help="This actor.")] = None
    data_subject_id: Annotated[str | None, Option("--data-subject", help="Personal data of this person.")] = None
    run_id: Annotated[str | None, Option("--run", help="trace_id, actor_id or payload.run_id is this.")] = None
    types: Annotated[
        Texts, Option("--type", "-t", help="Any of these entry types (repeatable); if absent, all but memory.searched.")
    ] = None
    exclude_types: Annotated[Texts, Option("--exclude-type", help="None of these types (repeatable).")] = None
    severities: Annotated[Texts, Option("--severity", help="Any of these severities (repeatable).")] = None
    actor_types: Annotated[Texts, Option("--actor-type", help="Any of these kinds of actor (repeatable).")] = None
    priorities: Annotated[Texts, Option("--priority", help="Any of these live priorities (repeatable).")] = None
    since: Annotated[
        str | None, Option("--since", help="At or after this time: 2h (ago), 2026-11-21, or RFC 3339.")
    ] = None
    until: Annotated[
        str | None, Option("--until", help="At or before this time: 2h (ago), 2026-11-21, or RFC 3339.")
    ] = None
    q: Annotated[
        str | None,
        Option(
            "--q",
            "-q",
            help="Contains this phrase (at most 200 characters).",
        ),
    ] = None

    def given(self) -> dict[str, Any]:
        """Those that filter; times as RFC 3339."""
        filters = {name: value for name, value in asdict(self).items() if value}
        ends = {"since": False, "until": True}
        return filters | {
            name: moment_of(filters[name], name, end=end) for name, end in ends.items() if name in filters
        }


def list_entries(
    *,
    filters: Filters,
    limit: Annotated[int, Option("--limit", "-n", help="Number of entries of a page, 1 to 500.")] = 100,
    cursor: Annotated[
        str | None, Option("--cursor", help="Continue from the next_cursor of the previous page.")
    ] = None,
    count: Annotated[bool, Option("--count", help="Print only the number of entries.")] = False,
    archive: Annotated[bool, Option("--archive", help="Include archived entries.")] = False,
    every: Annotated[bool, Option("--all", help="Print every page; with --json one entry per line.")] = False,
    min_seq: MinSeq = None,
    workspace: Workspace = None,
    where: Where,
    json_output: Json = False,
) -> None:
    """List entries, newest first. Filters are joined by AND; a repeated one means any of its values."""
    fields = {**filters.given(), "min_seq": min_seq, "workspace_id": workspace}
    if archive:
        fields["include_archive"] = True
    with client(where) as journal:
        if count:
            show(journal.count(**fields), json_output, lambda answer: print(answer["count"]))
            return
        while True:
            page = plain(journal.list(**fields, limit=limit, cursor=cursor))
            if json_output and not every:
                emit(page)
                return
            if not page["entries"] and not json_output:
                say("no entry passes these filters")
            for entry in page["entries"]:
                emit(entry, one_line=True) if json_output else print_entry(entry)
            cursor = page.get("next_cursor")
            if cursor is None or not every:
                break
    if cursor is not None:
        say(f"there are more: --cursor '{cursor}', or --all")


def get(
    entry_id: Annotated[str, Argument(metavar="ID", help="The entry.")],
    *,
    min_seq: MinSeq = None,
    workspace: Workspace = None,
    where: Where,
    json_output: Json = False,
) -> None:
    """Show one entry with all its fields, and whether it still counts (standing)."""
    with client(where) as journal:
        show(journal.get(entry_id, min_seq=min_seq, workspace_id=workspace), json_output, _print_fields)


def _print_fields(entry: Mapping[str, Any]) -> None:
    texts = {
        name: json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
        for name, value in entry.items()
    }
    print_pairs(texts.items())


def tail(
    *,
    filters: Filters,
    after: Annotated[
        int | None, Option("--after", min=0, help="Resume after this sequence; the last 50 entries if left out.")
    ] = None,
    limit: Annotated[int | None, Option("--limit", "-n", min=1, help="Stop after this number of entries.")] = None,
    workspace: Workspace = None,
    where: Where,
    json_output: Json = False,
) -> None:
    """Watch entries as they arrive, beginning with the latest ones; resumes by itself if the connection breaks."""

    def on_gap(gap: TailGap) -> None:
        say(f"{gap.missed} entries between {gap.after} and {gap.before} were missed: see `crew-journal list`")

    with client(where) as journal:
        entries = journal.tail(**filters.given(), after=after, workspace_id=workspace, on_gap=on_gap)
        for number, entry in enumerate(entries, 1):
            emit(entry, one_line=True) if json_output else print_entry(plain(entry))
            if number == limit:
                return

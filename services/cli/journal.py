"""``list`` and ``tail``: reading the journal itself, with every filter of the contract.

Invariant: an option is one filter of ``GET /v1/journal`` by the same meaning; the service judges its values.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from .fields import as_options
from .groups import grouped, names_of
from .options import Json, MinSeq, Where, Workspace

if TYPE_CHECKING:
    from ...schemas.api import TailGap


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of the journal under the names that HTTP has for them; an empty one filters nothing."""

    crew_ids: Annotated[list[str] | None, typer.Option("--crew", help="Any of these crews (repeatable).")] = None
    agent_ids: Annotated[list[str] | None, typer.Option("--agent", help="Any of these agents (repeatable).")] = None
    mission_id: Annotated[str | None, typer.Option("--mission", help="This mission.")] = None
    trace_id: Annotated[str | None, typer.Option("--trace", help="This run or session.")] = None
    actor_id: Annotated[str | None, typer.Option("--actor", help="This actor.")] = None
    run_id: Annotated[str | None, typer.Option("--run", help="trace_id, actor_id or payload.run_id is this.")] = None
    types: Annotated[list[str] | None, typer.Option("--type", "-t", help="Any of these entry types (repeatable).")] = (
        None
    )
    exclude_types: Annotated[
        list[str] | None, typer.Option("--exclude-type", help="None of these types (repeatable).")
    ] = None
    severities: Annotated[
        list[str] | None, typer.Option("--severity", help="Any of these severities (repeatable).")
    ] = None
    actor_types: Annotated[
        list[str] | None, typer.Option("--actor-type", help="Any of these kinds of actor (repeatable).")
    ] = None
    priorities: Annotated[
        list[str] | None, typer.Option("--priority", help="Any of these priorities (repeatable).")
    ] = None
    since: Annotated[str | None, typer.Option("--since", help="At or after this RFC 3339 time.")] = None
    until: Annotated[str | None, typer.Option("--until", help="At or before this RFC 3339 time.")] = None
    q: Annotated[str | None, typer.Option("--q", "-q", help="Contains this phrase (at most 200 characters).")] = None

    def given(self) -> dict[str, Any]:
        """Those that filter."""
        return {name: value for name, value in asdict(self).items() if value}


FIELDS: Final = names_of(Filters) | {
    "crew_id": "--crew",
    "agent_id": "--agent",
    "limit": "--limit",
    "workspace": "--workspace",
    "workspace_id": "--workspace",
}
"""Field of GET /v1/journal → option of both commands."""
LIST: Final = FIELDS | {"cursor": "--cursor", "min_seq": "--min-seq"}
TAIL: Final = FIELDS | {"after": "--after", "Last-Event-ID": "--after"}


@grouped
def list_entries(
    *,
    filters: Filters,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Number of entries of a page, 1 to 500.")] = 100,
    cursor: Annotated[
        str | None, typer.Option("--cursor", help="Continue from the next_cursor of the previous page.")
    ] = None,
    count: Annotated[bool, typer.Option("--count", help="Print only the number of entries.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Print every page; with --json one entry per line.")] = False,
    min_seq: MinSeq = None,
    workspace: Workspace = None,
    where: Where,
    json_output: Json = False,
) -> None:
    """List entries, newest first. Filters are joined by AND; a repeated one means any of its values."""
    from .connection import client
    from .output import emit, emit_line, plain, print_entry, say

    given = filters.given()
    with as_options(LIST), client(where) as journal:
        if count:
            found = plain(journal.count(**given, min_seq=min_seq, workspace_id=workspace))
            emit(found) if json_output else print(found["count"])
            return
        while True:
            page = plain(journal.list(**given, limit=limit, cursor=cursor, min_seq=min_seq, workspace_id=workspace))
            if json_output and not every:
                emit(page)
                return
            for entry in page["entries"]:
                emit_line(entry) if json_output else print_entry(entry)
            cursor = page.get("next_cursor")
            if cursor is None or not every:
                break
    if cursor is not None:
        say(f"there are more: --cursor '{cursor}', or --all")


@grouped
def tail(
    *,
    filters: Filters,
    after: Annotated[
        int | None, typer.Option("--after", min=0, help="Resume after this sequence; the last 50 entries if left out.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Stop after this number of entries.")
    ] = None,
    workspace: Workspace = None,
    where: Where,
    json_output: Json = False,
) -> None:
    """Watch entries as they arrive, beginning with the latest ones; resumes by itself if the connection breaks."""
    from .connection import client
    from .output import emit_line, plain, print_entry, say

    seen = 0

    def on_gap(gap: TailGap) -> None:
        say(f"{gap.missed} entries between {gap.after} and {gap.before} were missed: see `crew-journal list`")

    with as_options(TAIL), client(where) as journal:
        for item in journal.tail(**filters.given(), after=after, workspace_id=workspace, on_gap=on_gap):
            entry = plain(item)
            emit_line(entry) if json_output else print_entry(entry)
            seen += 1
            if limit is not None and seen >= limit:
                return

"""``list`` and ``tail``: reading the journal itself, with every filter of the contract.

Invariant: an option is one filter of ``GET /v1/journal`` by the same meaning; the service judges its values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from crew_journal.services.cli.fields import LIST, TAIL, as_options
from crew_journal.services.cli.options import FALLBACK_DATA_DIR, DataDir, Json, MinSeq, Token, Url, Workspace

if TYPE_CHECKING:
    from crew_journal.schemas.api import TailGap

Crew = Annotated[list[str] | None, typer.Option("--crew", help="Any of these crews (repeatable).")]
Agent = Annotated[list[str] | None, typer.Option("--agent", help="Any of these agents (repeatable).")]
Mission = Annotated[str | None, typer.Option("--mission", help="This mission.")]
Trace = Annotated[str | None, typer.Option("--trace", help="This run or session.")]
Actor = Annotated[str | None, typer.Option("--actor", help="This actor.")]
Run = Annotated[str | None, typer.Option("--run", help="trace_id, actor_id or payload.run_id is this.")]
Types = Annotated[list[str] | None, typer.Option("--type", "-t", help="Any of these entry types (repeatable).")]
NotTypes = Annotated[list[str] | None, typer.Option("--exclude-type", help="None of these types (repeatable).")]
Severities = Annotated[list[str] | None, typer.Option("--severity", help="Any of these severities (repeatable).")]
ActorTypes = Annotated[list[str] | None, typer.Option("--actor-type", help="Any of these kinds of actor (repeatable).")]
Priorities = Annotated[list[str] | None, typer.Option("--priority", help="Any of these priorities (repeatable).")]
Since = Annotated[str | None, typer.Option("--since", help="At or after this RFC 3339 time.")]
Until = Annotated[str | None, typer.Option("--until", help="At or before this RFC 3339 time.")]
Phrase = Annotated[str | None, typer.Option("--q", "-q", help="Bearing this phrase (at most 200 characters).")]


def list_entries(
    crew: Crew = None,
    agent: Agent = None,
    mission: Mission = None,
    trace: Trace = None,
    actor: Actor = None,
    run: Run = None,
    types: Types = None,
    exclude_types: NotTypes = None,
    severities: Severities = None,
    actor_types: ActorTypes = None,
    priorities: Priorities = None,
    since: Since = None,
    until: Until = None,
    q: Phrase = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Entries of a page, 1 to 500.")] = 100,
    cursor: Annotated[str | None, typer.Option("--cursor", help="Go on after this page's next_cursor.")] = None,
    count: Annotated[bool, typer.Option("--count", help="Only how many there are.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Every page; with --json one entry a line.")] = False,
    min_seq: MinSeq = None,
    workspace: Workspace = None,
    data_dir: DataDir = FALLBACK_DATA_DIR,
    url: Url = None,
    token: Token = None,
    json_output: Json = False,
) -> None:
    """List entries, newest first. Filters are joined by AND; a repeated one means any of its values."""
    from crew_journal.services.cli.connection import Where, client
    from crew_journal.services.cli.output import emit, emit_line, plain, print_entry, say

    filters = _filters(
        crew_ids=crew, agent_ids=agent, mission_id=mission, trace_id=trace, actor_id=actor, run_id=run, types=types,
        exclude_types=exclude_types, severities=severities, actor_types=actor_types, priorities=priorities,
        since=since, until=until, q=q,
    )  # fmt: skip
    with as_options(LIST), client(Where(data_dir, url, token)) as journal:
        if count:
            found = plain(journal.count(**filters, min_seq=min_seq, workspace_id=workspace))
            emit(found) if json_output else print(found["count"])
            return
        while True:
            page = plain(journal.list(**filters, limit=limit, cursor=cursor, min_seq=min_seq, workspace_id=workspace))
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


def tail(
    crew: Crew = None,
    agent: Agent = None,
    mission: Mission = None,
    trace: Trace = None,
    actor: Actor = None,
    run: Run = None,
    types: Types = None,
    exclude_types: NotTypes = None,
    severities: Severities = None,
    actor_types: ActorTypes = None,
    priorities: Priorities = None,
    since: Since = None,
    until: Until = None,
    q: Phrase = None,
    after: Annotated[
        int | None, typer.Option("--after", min=0, help="Resume after this sequence; the last 50 entries if left out.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Stop after so many entries.")] = None,
    workspace: Workspace = None,
    data_dir: DataDir = FALLBACK_DATA_DIR,
    url: Url = None,
    token: Token = None,
    json_output: Json = False,
) -> None:
    """Watch entries as they arrive, beginning with the latest ones; resumes by itself if the connection breaks."""
    from crew_journal.services.cli.connection import Where, client
    from crew_journal.services.cli.output import emit_line, plain, print_entry, say

    filters = _filters(
        crew_ids=crew, agent_ids=agent, mission_id=mission, trace_id=trace, actor_id=actor, run_id=run, types=types,
        exclude_types=exclude_types, severities=severities, actor_types=actor_types, priorities=priorities,
        since=since, until=until, q=q,
    )  # fmt: skip
    seen = 0

    def on_gap(gap: TailGap) -> None:
        say(f"{gap.missed} entries between {gap.after} and {gap.before} were missed: see `crew-journal list`")

    with as_options(TAIL), client(Where(data_dir, url, token)) as journal:
        for item in journal.tail(**filters, after=after, workspace_id=workspace, on_gap=on_gap):
            entry = plain(item)
            emit_line(entry) if json_output else print_entry(entry)
            seen += 1
            if limit is not None and seen >= limit:
                return


def _filters(**given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value}

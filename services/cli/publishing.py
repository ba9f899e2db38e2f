"""``publish`` and ``schema``: what an entry is, and how one gets in.

Invariant: the service judges an entry, not the command; it sends what it was given and repeats the answer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from .groups import grouped
from .options import Json, Where, Workspace, json_object

STDIN: Final = "-"
_FIELDS: Final = {
    "--id": "id",
    "--crew": "crew_id",
    "--agent": "agent_id",
    "--mission": "mission_id",
    "--trace": "trace_id",
    "--span": "span_id",
    "--ts": "ts",
    "--type": "entry_type",
    "--severity": "severity",
    "--priority": "priority",
    "--actor-type": "actor_type",
    "--actor": "actor_id",
    "--summary": "summary",
    "--payload": "payload",
    "--refs": "refs",
    "--data-subject": "data_subject_id",
    "--supersedes": "supersedes",
    "--valid-at": "valid_at",
    "--schema-version": "schema_version",
}
"""The field of an entry that each option gives."""


@grouped
def publish(
    summary: Annotated[
        str | None,
        typer.Argument(metavar="[SUMMARY|-]", help="What happened, or - for a JSON object or array from stdin."),
    ] = None,
    entry_type: Annotated[str | None, typer.Option("--type", "-t", help="Entry type, like peer.escalation.")] = None,
    entry_id: Annotated[
        str | None, typer.Option("--id", help="Id; publishing the same id and content again stores nothing.")
    ] = None,
    summary_option: Annotated[
        str | None, typer.Option("--summary", help="What happened; the same as the argument.")
    ] = None,
    severity: Annotated[str | None, typer.Option("--severity", help="info, notice, warn or error.")] = None,
    priority: Annotated[str | None, typer.Option("--priority", help="normal, high, pin or permanent.")] = None,
    crew: Annotated[str | None, typer.Option("--crew", help="Crew.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="Agent.")] = None,
    mission: Annotated[str | None, typer.Option("--mission", help="Mission.")] = None,
    trace: Annotated[str | None, typer.Option("--trace", help="Run or session.")] = None,
    span: Annotated[str | None, typer.Option("--span", help="Span of the run.")] = None,
    ts: Annotated[str | None, typer.Option("--ts", help="When it happened, RFC 3339; now if left out.")] = None,
    actor_type: Annotated[str | None, typer.Option("--actor-type", help="agent, user, system, keeper …")] = None,
    actor: Annotated[str | None, typer.Option("--actor", help="Name of who acted.")] = None,
    subject: Annotated[str | None, typer.Option("--data-subject", help="Whose personal data this is.")] = None,
    supersedes: Annotated[
        list[str] | None, typer.Option("--supersedes", help="Id of an entry that no longer counts; repeatable.")
    ] = None,
    valid_at: Annotated[
        str | None, typer.Option("--valid-at", help="When it was or becomes true, RFC 3339, if not --ts.")
    ] = None,
    payload: Annotated[str | None, typer.Option("--payload", help="JSON object.")] = None,
    refs: Annotated[str | None, typer.Option("--refs", help="JSON object.")] = None,
    schema_version: Annotated[int | None, typer.Option("--schema-version", min=1, help="Of the payload.")] = None,
    workspace: Workspace = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Publish one entry from options, or one or many from stdin with `-`; prints each id and sequence once acked."""
    from .connection import client
    from .output import emit, plain, safe

    options = {
        "--id": entry_id,
        "--crew": crew,
        "--agent": agent,
        "--mission": mission,
        "--trace": trace,
        "--span": span,
        "--ts": ts,
        "--type": entry_type,
        "--severity": severity,
        "--priority": priority,
        "--actor-type": actor_type,
        "--actor": actor,
        "--summary": summary_option,
        "--payload": json_object(payload, "--payload"),
        "--refs": json_object(refs, "--refs"),
        "--data-subject": subject,
        "--supersedes": supersedes or None,
        "--valid-at": valid_at,
        "--schema-version": schema_version,
    }
    given = {option: value for option, value in options.items() if value is not None}
    records = _from_stdin(given, workspace) if summary == STDIN else _from_options(given, summary, workspace)
    with client(where, create=True) as journal:
        receipts = journal.append_batch(records) if isinstance(records, list) else (journal.append(records),)
    acks = [plain(receipt) for receipt in receipts]
    if json_output:
        emit({"entries": acks})
        return
    for ack in acks:
        again = "  (it was there already)" if ack.get("duplicate") else ""
        print(f"{safe(ack['id'])}  seq {ack['seq']}{again}")


def schema(json_output: Json = False) -> None:
    """Print the JSON Schema of an entry as it is submitted, for agents in other languages."""
    from ...schemas.export import entry_json_schema

    print(json.dumps(entry_json_schema(), indent=None if json_output else 2))


def _from_options(given: Mapping[str, Any], summary: str | None, workspace: str | None) -> dict[str, Any]:
    if summary is not None and "--summary" in given:
        raise typer.BadParameter(
            "the summary is given twice: as the argument, and with this option", param_hint="--summary"
        )
    record = {_FIELDS[option]: value for option, value in given.items()}
    if summary is not None:
        record["summary"] = summary
    if workspace is not None:
        record["workspace_id"] = workspace
    return record


def _from_stdin(given: Mapping[str, Any], workspace: str | None) -> dict[str, Any] | list[dict[str, Any]]:
    for option in given:  # an entry cannot be changed afterwards, so nothing that was asked for is left out of it
        raise typer.BadParameter(
            f"not allowed with entries from stdin: put {_FIELDS[option]} into the JSON", param_hint=option
        )
    try:
        records = json.loads(sys.stdin.buffer.read())
    except ValueError as error:
        raise typer.BadParameter(f"stdin is not JSON: {error}", param_hint=STDIN) from None
    except RecursionError:
        raise typer.BadParameter("stdin is nested too deeply", param_hint=STDIN) from None
    listed = records if isinstance(records, list) else [records]
    if not listed or not all(isinstance(record, dict) for record in listed):
        raise typer.BadParameter("stdin is not a JSON object or an array of objects", param_hint=STDIN)
    if workspace is not None:
        for number, record in enumerate(listed, 1):
            if (record.get("workspace_id") or workspace) != workspace:
                raise typer.BadParameter(f"entry {number} of stdin names another workspace", param_hint="--workspace")
            record["workspace_id"] = workspace
    return listed if isinstance(records, list) else listed[0]

"""``publish`` and ``schema``: entries into the journal, and the schema of an entry.

Invariant: the service judges an entry, not the command; it sends what it was given and repeats the answer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final

import click

from .commands import Argument, Option
from .connection import client
from .options import Json, Where, Workspace, json_object, json_value
from .output import plain, safe, say_warnings, show

STDIN: Final = "-"
NOTE: Final = "note.written"
"""Type of an entry that is given as a text alone."""
Text = str | None


@dataclass(frozen=True, slots=True)
class EntryOptions:
    """The fields of an entry as options."""

    entry_type: Annotated[Text, Option("--type", "-t", help="Entry type; note.written for a text alone.")] = None
    id: Annotated[Text, Option("--id", help="Id; publishing the same id and content again stores nothing.")] = None
    summary: Annotated[Text, Option("--summary", help="What happened; the same as the argument.")] = None
    severity: Annotated[Text, Option("--severity", help="info, notice, warn or error.")] = None
    priority: Annotated[Text, Option("--priority", help="normal, high, pin or permanent.")] = None
    crew_id: Annotated[Text, Option("--crew", help="Crew.")] = None
    agent_id: Annotated[Text, Option("--agent", help="Agent.")] = None
    mission_id: Annotated[Text, Option("--mission", help="Mission.")] = None
    trace_id: Annotated[Text, Option("--trace", help="Run or session.")] = None
    span_id: Annotated[Text, Option("--span", help="Span of the run.")] = None
    ts: Annotated[Text, Option("--ts", help="When it happened, RFC 3339; now if left out.")] = None
    actor_type: Annotated[Text, Option("--actor-type", help="agent, user, system, keeper …")] = None
    actor_id: Annotated[Text, Option("--actor", help="Name of the actor.")] = None
    data_subject_id: Annotated[Text, Option("--data-subject", help="Whose personal data this is.")] = None
    supersedes: Annotated[
        list[str] | None, Option("--supersedes", help="Id of an entry that no longer counts; repeatable.")
    ] = None
    valid_at: Annotated[Text, Option("--valid-at", help="When it was or becomes true, RFC 3339, if not --ts.")] = None
    payload: Annotated[Text, Option("--payload", help="JSON object.")] = None
    refs: Annotated[Text, Option("--refs", help="JSON object.")] = None
    schema_version: Annotated[int | None, Option("--schema-version", min=1, help="Of the payload.")] = None

    def given(self) -> dict[str, Any]:
        """The fields of the options that were given."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        for name in ("payload", "refs"):
            if values[name] is not None:
                values[name] = json_object(values[name], f"--{name}")
        return {name: value for name, value in values.items() if value is not None and value != []}


def publish(
    text: Annotated[
        str | None, Argument(metavar="[SUMMARY|-]", help="What happened, or - for a JSON object or array from stdin.")
    ] = None,
    *,
    options: EntryOptions,
    workspace: Workspace = None,
    where: Where,
    json_output: Json = False,
) -> None:
    """Publish one entry from options, or one or many from stdin with `-`; prints each id and sequence once acked."""
    given = options.given()
    records: dict[str, Any] | list[dict[str, Any]]
    if text == STDIN:
        records = _from_stdin(given, workspace)
    else:
        if text is not None and "summary" in given:
            raise click.BadParameter("is given twice: as the argument, and with this option", param_hint="--summary")
        more = {"summary": text, "workspace_id": workspace}
        if text is not None and "entry_type" not in given:
            given["entry_type"] = NOTE
        records = given | {name: value for name, value in more.items() if value is not None}
    with client(where, create=True) as journal:
        receipts = journal.append_batch(records) if isinstance(records, list) else (journal.append(records),)
    show({"entries": [plain(receipt) for receipt in receipts]}, json_output, _print_acks)


def schema(json_output: Json = False) -> None:
    """Print the JSON Schema of an entry as it is submitted, for agents in other languages."""
    from ...schemas.export import entry_json_schema

    print(json.dumps(entry_json_schema(), indent=None if json_output else 2))


def _print_acks(answer: Mapping[str, Any]) -> None:
    for ack in answer["entries"]:
        again = "  (stored before)" if ack.get("duplicate") else ""
        print(f"{safe(ack['id'])}  seq {ack['seq']}{again}")
        say_warnings(ack)


def _from_stdin(given: Mapping[str, Any], workspace: str | None) -> dict[str, Any] | list[dict[str, Any]]:
    for name in given:  # an entry cannot be changed later, so an option that would be left out is refused
        raise click.BadParameter(
            f"not allowed with entries from stdin: put {name} into the JSON", param_hint=_option_of(name)
        )
    records = json_value(sys.stdin.buffer.read(), STDIN)
    listed = records if isinstance(records, list) else [records]
    if not listed or not all(isinstance(record, dict) for record in listed):
        raise click.BadParameter("stdin is not a JSON object or an array of objects", param_hint=STDIN)
    for number, record in enumerate(listed if workspace is not None else (), 1):
        if (record.get("workspace_id") or workspace) != workspace:
            raise click.BadParameter(f"entry {number} of stdin names another workspace", param_hint="--workspace")
        record["workspace_id"] = workspace
    return listed if isinstance(records, list) else listed[0]


def _option_of(name: str) -> str:
    """The option of a field: ``--crew`` for ``crew_id``."""
    special = {"entry_type": "--type", "data_subject_id": "--data-subject"}
    return special.get(name, "--" + name.removesuffix("_id").replace("_", "-"))

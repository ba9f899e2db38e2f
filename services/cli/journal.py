"""``list``, ``get``, ``tail``, ``publish``, ``schema`` and ``export``: the entries of the journal, read and written.

Invariant: a filter option is one filter of ``GET /v1/journal`` by the same meaning; the service judges its values.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import click

from ...schemas.core.errors import InvalidQuery, NotFound, Unavailable
from ..printable import moment_of, safe
from .commands import Argument, Option
from .connection import client
from .options import AsOf, Json, MinSeq, Where, Workspace, json_object, json_value, past_or_now
from .output import (
    Progress,
    counted,
    emit,
    plain,
    print_entry,
    print_pairs,
    print_table,
    progress_bar,
    say,
    say_warnings,
    show,
)

if TYPE_CHECKING:
    from ...schemas.api import TailGap
    from ..client import CrewJournal

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
        Texts,
        Option(
            "--type",
            "-t",
            help="Any of these entry types (repeatable); if absent, all but memory.searched and memory.given.",
        ),
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
        """The given filters, with times as RFC 3339."""
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
    as_of: AsOf = None,
    workspace: Workspace = None,
    where: Where,
    json_output: Json = False,
) -> None:
    """List entries, newest first. Filters are joined by AND; a repeated one means any of its values."""
    fields = {**filters.given(), "min_seq": min_seq, "as_of": past_or_now(as_of), "workspace_id": workspace}
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
    as_of: AsOf = None,
    workspace: Workspace = None,
    where: Where,
    json_output: Json = False,
) -> None:
    """Show one entry with all its fields, and whether it still counts (standing)."""
    with client(where) as journal:
        try:
            entry = journal.get(entry_id, min_seq=min_seq, as_of=past_or_now(as_of), workspace_id=workspace)
        except NotFound as error:
            error.hint = f"{error.hint}; `crew-journal recall` and `crew-journal list` show ids"
            raise
        show(entry, json_output, _print_fields)


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


# ``publish`` and ``schema``: entries into the journal, and the schema of an entry.


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
    with client(where, create=True, stay=True) as journal:
        receipts = journal.append_batch(records) if isinstance(records, list) else (journal.append(records),)
    show({"entries": [plain(receipt) for receipt in receipts]}, json_output, _print_acks)


def schema(json_output: Json = False) -> None:
    """Print the JSON Schema of an entry as it is submitted, for agents in other languages."""
    from ...schemas.catalogue import entry_json_schema

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


# ``export``: the entries of each workspace as a file, JSONL or Parquet, in the order of the journal; or a person's data.


LOG_SUFFIX: Final = ".log.jsonl"
OMP_SUFFIX: Final = ".omp.json"


def export(
    target: Annotated[str, Argument(metavar="DIR", help="Directory of the files; made if needed.")],
    format_: Annotated[
        Literal["jsonl", "parquet", "omp"],
        Option("--format", help="jsonl, parquet, or omp: an exchange of the Open Memory Protocol."),
    ] = "jsonl",
    archive: Annotated[bool, Option("--archive", help="Include archived entries.")] = False,
    proofs: Annotated[
        bool,
        Option(
            "--proofs", help="Every message of the workspace with its sequence and its proofs: DIR/WORKSPACE.log.jsonl."
        ),
    ] = False,
    subject: Annotated[str | None, Option("--subject", help="A person: all data of this person.")] = None,
    reason: Annotated[str, Option("--reason", help="With --subject: the reason; it is recorded.")] = "",
    follow: Annotated[
        bool,
        Option(
            "--follow",
            help="With --format parquet: files by hour below DIR (or s3://BUCKET/PREFIX), kept up to date until Ctrl-C.",
        ),
    ] = False,
    every: Annotated[
        float, Option("--every", min=0, help="With --follow: seconds between two passes; 0 makes a single pass.")
    ] = 60.0,
    workspace: Workspace = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Write the entries of each workspace, or of one, to DIR/WORKSPACE.jsonl or .parquet, in the order of the journal.

    With --proofs: write every message of the workspace, decisions and receipts included, with leaves and checkpoints.
    `verify --export` checks such a file without this journal, `import` takes it over into another one.

    With --subject: write everything that bears a person's data or was derived from it to DIR/person.zip.
    """
    if subject is not None and not reason.strip():
        raise InvalidQuery("an export of a person's data needs a reason", hint="--reason 'asked on …'", field="reason")
    if follow:
        if format_ != "parquet" or proofs or subject is not None:
            raise click.BadParameter("goes with --format parquet alone", param_hint="--follow")
        _follow(target, workspace, every, where, json_output)
        return
    folder = Path(target)
    if folder.exists() and not folder.is_dir():
        raise click.BadParameter(f"{folder} is a file; name a directory", param_hint="DIR")
    with client(where) as journal:
        if subject is not None:
            exported = plain(journal.export_person(reason, subject, workspace_id=workspace))
            if not any(exported[name] for name in ("messages", "given", "consent", "model", "cards")):
                raise NotFound(
                    f"the journal has nothing of {subject}, so no file was written",
                    hint="check the name: `operator list` shows people, `list --data-subject NAME` what bears theirs",
                )
            show(_write_person(folder, exported), json_output, _print_person)
            return
        names = [workspace] if workspace else [workspace.workspace_id for workspace in journal.workspaces().workspaces]
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if proofs:
            made = [_export_log(journal, name, folder / f"{name}{LOG_SUFFIX}") for name in names]
        else:
            suffix = OMP_SUFFIX if format_ == "omp" else f".{format_}"
            made = [_export(journal, name, folder / f"{name}{suffix}", archive) for name in names]
    show({"files": made}, json_output, _print)


def _follow(tree: str, workspace: str | None, every: float, where: Where, json_output: bool) -> None:
    """Pass over the journal until a signal; an outage is said, and the next pass goes on."""
    from .hourly import HourlyExport
    from .run import stopping

    stopped = threading.Event()
    with client(where) as journal, stopping(stopped):
        export = HourlyExport(journal, tree)
        while not stopped.is_set():
            try:
                names = [workspace] if workspace else [one.workspace_id for one in journal.workspaces().workspaces]
                written = asdict(export.write(names))
            except (Unavailable, OSError) as error:
                if not every:
                    raise
                say(f"{error}; next pass in {every:g} s")
            else:
                if json_output or any(written.values()):
                    show(written, json_output, _print_pass)
            if not every:
                return
            stopped.wait(every)


def _print_pass(written: Mapping[str, Any]) -> None:
    erased = f", {counted(written['erased'], 'entry', 'entries')} erased" if written["erased"] else ""
    print(f"{counted(written['entries'], 'entry', 'entries')} in {counted(written['files'], 'file', 'files')}{erased}")


def _write_person(folder: Path, exported: Mapping[str, Any]) -> dict[str, Any]:
    """Write the parts of the export into one archive that only the owner of the file can read."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / "person.zip"
    lists = {name: exported[name] for name in ("messages", "given")}
    manifest = {name: value for name, value in exported.items() if name not in lists}
    manifest["files"] = {f"{name}.jsonl": len(rows) for name, rows in lists.items()}
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise click.BadParameter(f"{path} exists already; name a new directory", param_hint="DIR") from None
    try:
        with os.fdopen(descriptor, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("manifest.json", json.dumps(manifest, ensure_ascii=False, indent=1))
            for name, rows in lists.items():
                text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
                archive.writestr(f"{name}.jsonl", text)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return {
        "file": str(path),
        "bytes": path.stat().st_size,
        "counts": exported["counts"],
        "given": len(exported["given"]),
    }


def _print_person(answer: Mapping[str, Any]) -> None:
    print_pairs([("file", answer["file"]), *answer["counts"].items(), ("receipts of recalls", answer["given"])])


def _export(journal: CrewJournal, workspace: str, path: Path, archive: bool) -> dict[str, Any]:
    if path.exists():
        raise click.BadParameter(f"{path} exists already; name a new directory", param_hint="DIR")
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with progress_bar(f"export {workspace}") as bar:
            entries = _in_order(journal, workspace, archive, bar)
            if path.name.endswith(OMP_SUFFIX):
                from .importing.sources.open_memory import write_omp

                with draft.open("w", encoding="utf-8") as file:
                    count = write_omp(file, entries, workspace)
            else:
                count = _write_parquet(draft, entries) if path.suffix == ".parquet" else _write_jsonl(draft, entries)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return {"workspace": workspace, "file": str(path), "entries": count, "bytes": path.stat().st_size}


def _export_log(journal: CrewJournal, workspace: str, path: Path) -> dict[str, Any]:
    """Write a workspace with its proofs, so that only the owner of the file can read it."""
    if path.exists():
        raise click.BadParameter(f"{path} exists already; name a new directory", param_hint="DIR")
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    count = 0
    next_seq: int | None = 1
    to_seq: int | None = None
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file, progress_bar(f"export {workspace}") as bar:
            while next_seq is not None:
                page = journal.export_log(from_seq=next_seq, to_seq=to_seq, workspace_id=workspace)
                for line in page.lines:
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")
                    count += "seq" in line
                next_seq, to_seq = page.next_seq, page.to_seq
                bar(count)
            file.write(json.dumps({"messages": count}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return {"workspace": workspace, "file": str(path), "entries": count, "bytes": path.stat().st_size}


def _in_order(journal: CrewJournal, workspace: str, archive: bool, bar: Progress) -> Iterator[dict[str, Any]]:
    entries = journal.entries(workspace_id=workspace, include_archive=archive, after_seq=0)
    for number, entry in enumerate(entries, 1):
        yield plain(entry)
        bar(number)


def _write_jsonl(path: Path, entries: Iterator[dict[str, Any]]) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for entry in entries:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")
            count += 1
    return count


def _write_parquet(path: Path, entries: Iterator[dict[str, Any]]) -> int:
    import pyarrow.parquet as pq

    from .hourly import GROUP, entry_schema, table_of

    count = 0
    with pq.ParquetWriter(path, entry_schema()) as writer:
        while group := list(islice(entries, GROUP)):
            writer.write_table(table_of(group))
            count += len(group)
    return count


def _print(answer: dict[str, Any]) -> None:
    columns = ("workspace", "entries", "bytes", "file")
    print_table(columns, [[file[name] for name in columns] for file in answer["files"]], right=("entries", "bytes"))
    print(counted(sum(file["entries"] for file in answer["files"]), "entry", "entries"))

"""``import``: imports a JSONL file or the data of another program; waits while the service restarts.

Invariant: an entry counts once, even if its file is imported several times or from different places. A file with a bad
line is not imported at all, unless bad lines are to be set aside; stdin can be read only once, so the batches before
the bad line are imported.
"""

from __future__ import annotations

import base64
import io
import json
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final

import click

from ....schemas.core.errors import ERASED_HINT, EntryConflict, InvalidQuery, NotAllowed, NotFound, VerificationFailed
from ....schemas.core.limits import REQUEST_BYTES
from ....schemas.core.sequence_set import format_ranges
from ....schemas.models.rules import REMEMBERED
from ....schemas.standing.operations import State
from ...printable import safe
from ..backing_up import wait_erased
from ..commands import Argument, Option
from ..completion import workspaces
from ..connection import Target, client, sync_client, target
from ..operate import checked_export
from ..options import Json, Where, among, settings_from
from ..output import Progress, counted, progress_bar, say, show
from ..palace_sources import NOTE_SUFFIXES
from .lines import BATCH_LINES, MAX_LINE_BYTES, BadLine, Line, LineBatch, batches_of, read_batches, read_line, refusal
from .run import ImportState, StateFile
from .sources import conversations, open_memory, records, transcripts
from .sources.found import IMPORTED, Notes, Reader, Record, content_id

if TYPE_CHECKING:
    from .run import BatchAck, Sender


# Which program's format is read by what, and where that program keeps its files.


@dataclass(frozen=True, slots=True)
class ImportFormat:
    """A format.

    Attributes:
        read: Its reader.
        usual: Where the program keeps it, below the home directory; None if a person exports it.
    """

    read: Reader
    usual: str | None = None


SOURCES: Final[Mapping[str, ImportFormat]] = {
    "claude-code": ImportFormat(transcripts.read_claude_code, ".claude/projects"),
    "codex": ImportFormat(transcripts.read_codex, ".codex/sessions"),
    "chatgpt": ImportFormat(conversations.read_chatgpt),
    "claude": ImportFormat(conversations.read_claude),
    "openai-messages": ImportFormat(conversations.read_openai_messages),
    "mem0": ImportFormat(records.read_mem0),
    "mcp-memory": ImportFormat(records.read_mcp_memory),
    "otel": ImportFormat(records.read_otel),
    "cloudevents": ImportFormat(records.read_cloudevents),
    "slack": ImportFormat(conversations.read_slack),
    "omp": ImportFormat(open_memory.read_omp),
}
"""By the value of ``--from``."""


# The plan of an import from another program: what would be written, and what is left out.


_SHOWN: Final = 8
"""Crews, agents, types and invalid submissions that a plan names; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What to import, and for whom.

    Attributes:
        name: The format, as ``--from`` names it.
        source: Its reader.
        path: The file or directory.
        agent: The agent of all entries; None keeps the source's agent.
        crew: The crew of all entries, likewise.
        promote: Whether statements are imported as ``memory.remembered``.
    """

    name: str
    source: ImportFormat
    path: Path
    agent: str | None = None
    crew: str | None = None
    promote: bool = False

    def records(self, notes: Notes) -> Iterator[Record]:
        """Every submission, each with its id."""
        wanted = {name: value for name, value in (("agent_id", self.agent), ("crew_id", self.crew)) if value}
        before: tuple[str | None, str | None] = (None, None)
        for raw in self.source.read(self.path, notes):
            record = {name: value for name, value in raw.items() if value not in (None, "")}
            trace = record.get("trace_id")
            if trace is not None and "ts" not in record and before[0] == trace and before[1] is not None:
                record["ts"] = before[1]  # so that the order of a conversation is kept
            before = (trace, record.get("ts"))
            if self.promote and record["entry_type"] == IMPORTED:
                record["entry_type"] = REMEMBERED
            if any(record.get(name) != value for name, value in wanted.items()):
                record = {name: value for name, value in record.items() if name != "id"} | wanted
                if record.get("actor_type") == "agent":
                    record["actor_id"] = record["agent_id"]
            yield record if record.get("id") else {"id": content_id(record), **record}

    def lines(self, notes: Notes, workspace: str | None) -> Iterator[tuple[int, bytes, Line | BadLine | None]]:
        """(number from 1, bytes, what came of it) of each submission, as of a line of a file."""
        for number, record in enumerate(self.records(notes), 1):
            raw = json.dumps(record, ensure_ascii=False).encode("utf-8", "replace")
            yield number, raw, read_line(number, raw, workspace, notes.place.at)

    def batches(self, notes: Notes, workspace: str | None) -> Iterator[LineBatch]:
        """The submissions in batches like those of a file; a line's number is the number of its submission."""
        return batches_of(self.lines(notes, workspace))


@dataclass(slots=True)
class Plan:
    """What an import would write, as counts, and the first submissions that are not valid entries."""

    entries: int = 0
    first: str | None = None
    last: str | None = None
    conversations: set[str] = field(default_factory=set)
    types: Counter[str] = field(default_factory=Counter)
    agents: Counter[str] = field(default_factory=Counter)
    crews: Counter[str] = field(default_factory=Counter)
    notes: Notes = field(default_factory=Notes)
    bad: list[BadLine] = field(default_factory=list)

    @classmethod
    def of(cls, selection: Selection, workspace: str | None = None) -> Plan:
        """Read everything once, check it and count."""
        plan = cls()
        for _, _, read in selection.lines(plan.notes, workspace):
            plan.entries += 1
            if not isinstance(read, Line):
                if read is not None and len(plan.bad) < _SHOWN:
                    plan.bad.append(read)
                continue
            record = read.record
            if (at := record.get("ts")) is not None:
                plan.first, plan.last = min(plan.first or at, at), max(plan.last or at, at)
            if trace := record.get("trace_id"):
                plan.conversations.add(trace)
            plan.types[record["entry_type"]] += 1
            plan.agents[record.get("agent_id", "-")] += 1
            plan.crews[record.get("crew_id", "-")] += 1
        return plan

    def as_json(self) -> dict[str, Any]:
        """The counts as a JSON object."""
        return {
            "entries": self.entries,
            "conversations": len(self.conversations),
            "first": self.first,
            "last": self.last,
            **{name: dict(getattr(self, name).most_common()) for name in ("types", "agents", "crews")},
            "left_out": dict(self.notes.left_out.most_common()),
            "without_time": self.notes.untimed,
            "time_without_zone": self.notes.zoneless,
            "cut": self.notes.cut,
        }


def say_plan(plan: Mapping[str, Any], source: str) -> None:
    """The plan for a person, on stderr."""
    say(f"{source}: {counted(plan['entries'], 'entry', 'entries')}, {counted(plan['conversations'], 'conversation')}")
    if plan["first"]:
        say(f"  from       {plan['first'][:16]}Z to {plan['last'][:16]}Z")
    for name in ("types", "agents", "crews"):
        if plan[name].keys() - {"-"}:
            say(f"  {name:<10} {_named(plan[name])}")
    for reason, count in plan["left_out"].items():
        say(f"  left out   {count:,} {safe(reason)}")
    if plan["without_time"]:
        say(
            f"  times      {plan['without_time']:,} have none: that of the message before counts, or that of the import"
        )
    if plan["time_without_zone"]:
        say(f"  times      {plan['time_without_zone']:,} have no zone and are read as UTC")
    if plan["cut"]:
        say(f"  cut        {counted(plan['cut'], 'text')} longer than 128 KiB")


def _named(counts: Mapping[str, int]) -> str:
    shown = [f"{safe(name)} ({count:,})" for name, count in list(counts.items())[:_SHOWN]]
    rest = len(counts) - len(shown)
    return ", ".join(shown) + (f" and {rest:,} more" if rest else "")


STDIN: Final = "-"
_LOG_HEAD: Final = 16
"""Bytes by which a file of ``export --proofs`` is known."""
_ENDED: Final = (State.RETRACTED, State.STALE, State.SUPERSEDED)
_REASON_CHARS: Final = 1_000
"""As of a retraction (``schemas/standing/operations``)."""
SHOWN_LINES: Final = 20
"""Maximum number of lines that are printed because their ids are already used: one screen; --skip-invalid writes them
to a file.
"""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How to import."""

    restart: Annotated[bool, Option("--restart", help="Send every line again, from the first one.")] = False
    from_line: Annotated[
        int | None, Option("--from-line", min=1, help="Number of the first line to send; lines count from 1.")
    ] = None
    skip_invalid: Annotated[
        Path | None, Option("--skip-invalid", dir_okay=False, help="Write bad lines to this file and go on.")
    ] = None
    timeout_s: Annotated[
        float, Option("--timeout", min=0, help="Seconds to wait while the service cannot be reached.")
    ] = 300.0  # a restart after a crash takes at most two minutes
    workspace: Annotated[
        str | None,
        Option(
            "--workspace",
            "-w",
            envvar="CREW_JOURNAL_WORKSPACE",
            help="Workspace for all entries, whatever workspace they name.",
            autocompletion=workspaces,
        ),
    ] = None
    public_key: Annotated[
        str | None, Option("--public-key", help="Of a file of `export --proofs`: the key that must have signed it.")
    ] = None
    source: Annotated[
        str | None,
        Option(
            "--from", help=f"Format of another program: {', '.join(SOURCES)}.", autocompletion=among(lambda: SOURCES)
        ),
    ] = None
    dry_run: Annotated[bool, Option("--dry-run", help="With --from: show the plan and write nothing.")] = False
    agent: Annotated[str | None, Option("--agent", help="With --from: the agent of all entries.")] = None
    crew: Annotated[str | None, Option("--crew", help="With --from: the crew of all entries.")] = None
    promote: Annotated[
        bool, Option("--promote", help="With --from: import statements as memory.remembered, not as memory.imported.")
    ] = False


@dataclass(slots=True, kw_only=True)
class Import:
    """An import: its source, its target, and its progress.

    Attributes:
        source: The file.
        state: The progress.
        kept: File of the progress; None to store none.
        aside: File for lines that are left out.
        bar: Shows the position.
        resumed_from: First line that is sent; None if that is the first line of the file or set by an option.
        imported: Entries that were new.
        repeated: Entries that the journal already had.
        skipped: Lines that were left out, because they were bad or their id belongs to another entry.
        taken: Lines whose id belongs to another entry, or was erased.
        erased: Those whose id was erased.
        of_service: Skipped lines of a listing: archived entries, and entries that only the service writes.
        last_seq: Highest sequence acked, 0 if nothing was sent.
        ended: New entries that did not count any more where they were listed.
        retired: How many of these were retracted here, too.
    """

    source: BinaryIO
    state: ImportState
    kept: StateFile | None
    aside: BinaryIO | None
    bar: Progress
    resumed_from: int | None
    imported: int = 0
    repeated: int = 0
    skipped: int = 0
    taken: int = 0
    erased: int = 0
    of_service: int = 0
    last_seq: int = 0
    ended: list[Line] = field(default_factory=list)
    retired: int = 0
    began: float = field(default_factory=time.monotonic)

    def acked(self, ack: BatchAck) -> None:
        """Count an acked batch; all earlier batches are acked, too."""
        self.state = replace(self.state, offset=ack.batch.end_offset, line=ack.batch.end_line)
        if ack.sent:
            last = max(ack.sent, key=lambda entry: entry.seq)
            self.last_seq = max(self.last_seq, last.seq)
            if last.seq > self.state.last_seq:
                record = next(line.record for line in ack.batch.good if line.record["id"] == last.id)
                workspace = record.get("workspace_id")
                self.state = replace(self.state, last_seq=last.seq, last_id=last.id, last_workspace=workspace)
        self.of_service += ack.batch.of_service
        new = {entry.id for entry in ack.sent if not entry.duplicate}
        self.ended += [
            line for line in ack.batch.good if line.record["id"] in new and (line.standing or {}).get("state") in _ENDED
        ]
        repeated = sum(entry.duplicate for entry in ack.sent)
        self.repeated += repeated
        self.imported += len(ack.sent) - repeated
        left_out = sorted((*ack.bad, *ack.taken), key=lambda line: line.number)
        self.skipped += len(left_out)
        if self.aside is not None and left_out:
            self.aside.writelines(line.raw + b"\n" for line in left_out)
            self.aside.flush()
        for line in ack.taken[: max(0, SHOWN_LINES - self.taken)]:
            say(f"{line.name}: {line.problems[0].problem}")
        self.taken += len(ack.taken)
        self.erased += sum(line.problems[0].fix == ERASED_HINT for line in ack.taken)
        if self.kept is not None:
            self.kept.save(self.state, self.source)
        sent = self.imported + self.repeated
        pace = sent / max(time.monotonic() - self.began, 1e-9)
        self.bar(self.state.offset, note=f"{sent:,} entries, {pace:,.0f}/s")

    def waiting(self, why: str) -> None:
        """Show that the service is waited for."""
        self.bar(self.state.offset, note=f"waiting for the service: {why}")

    def close(self) -> None:
        """Keep the state as it is now, and report how many lines were left out unnamed."""
        if self.taken > SHOWN_LINES:
            say(f"and {self.taken - SHOWN_LINES:,} more lines whose ids belong to other entries or were erased")
        if self.kept is not None:
            self.kept.save(self.state, self.source, now=True)


def import_command(
    file: Annotated[
        str | None,
        Argument(metavar="[FILE]", help="The JSONL file, or - for stdin; with --from a file or a directory."),
    ] = None,
    *,
    options: ImportOptions,
    where: Where,
    json_output: Json = False,
) -> None:
    """Import a JSONL file, one entry per line, or with --from what another program keeps. Repeating it changes nothing.

    An import of a file resumes where it stopped, and takes back what `list --all --json` prints. Entries without an id
    get one that follows from line number and content. If a line is bad, nothing of the file is imported: every problem of
    its batch (500 lines) is named by line, and the exit code is 2. A line whose id belongs to another entry is named and
    left out; the import goes on, and its exit code is 1.
    """
    selection = None if options.source is None else _selection(file, options)
    if selection is None:
        _check_file(file, options)
        if file not in (None, STDIN) and _holds_log(Path(str(file))):
            show(_import_log(Path(str(file)), where, options), json_output, _print_log)
            return
    plan = None
    if selection is not None:
        import_plan = Plan.of(selection, options.workspace)
        if import_plan.bad and options.skip_invalid is None:
            raise refusal(import_plan.bad)
        plan = import_plan.as_json()
        if not json_output:
            say_plan(plan, selection.name)
        if options.dry_run or not plan["entries"]:
            why = (
                ""
                if plan["entries"]
                else f": {selection.path} holds no entries in the format {selection.name} (--from)"
            )
            show({"from": selection.name, "plan": plan}, json_output, lambda _: say(f"nothing was written{why}"))
            return
    began = time.monotonic()
    with target(where, create=True, stay=True) as there:
        done = import_file(file or "", there, where, options, selection, total=plan["entries"] if plan else None)
        seconds = time.monotonic() - began
        behind = _behind(there, where, done.last_seq)
        while done.ended and behind and (left := _behind(there, where, done.last_seq)) != behind:
            behind = left
        if not behind:
            _retire_ended(there, done)
    report = {
        "file": done.state.path,
        **({"from": selection.name, "plan": plan} if selection is not None else {}),
        "imported": done.imported,
        "repeated": done.repeated,
        "skipped": done.skipped,
        "taken": done.taken,
        "erased": done.erased,
        "of_service": done.of_service,
        "retired": done.retired,
        "to_retract": [line.record["id"] for line in done.ended] if behind else [],
        "resumed_from_line": done.resumed_from,
        "last_line": done.state.line,
        "last_seq": done.state.last_seq or None,
        "views_behind": behind,
        "seconds": round(seconds, 3),
        "entries_per_second": round((done.imported + done.repeated) / seconds) if seconds > 0 else None,
    }
    show(report, json_output, _print_report)
    if (taken := done.taken - done.erased) and options.skip_invalid is None:
        raise EntryConflict(
            f"{counted(taken, 'line')} left out: the id belongs to another entry",
            hint="give them ids of their own; an entry that corrects another names it in refs.parent_entry_id",
        )


def _print_report(report: Mapping[str, Any]) -> None:
    if report["resumed_from_line"] and not report["imported"] + report["repeated"] + report["skipped"]:
        say(f"nothing new: all {report['last_line']:,} lines were read before (--restart sends them again)")
    print(
        f"imported {report['imported']:,}, already there {report['repeated']:,}, left out {report['skipped']:,} "
        f"in {report['seconds']:.1f} s; last sequence {report['last_seq'] or 0}"
    )
    if report["of_service"]:
        passed = counted(report["of_service"], "entry", "entries")
        say(f"{passed} passed over: records of the service, or archived (`backup` keeps everything)")
    if report["retired"]:
        did = counted(report["retired"], "entry that did", "entries that did")
        say(f"{did} not count any more at the source {'is' if report['retired'] == 1 else 'are'} retracted here, too")
    if report["views_behind"]:
        say(
            f"the views are behind by {report['views_behind']:,} sequences: until they are not, recall and list find fewer "
            "entries (see `crew-journal status`)"
        )
    if report["to_retract"]:
        say(
            f"{counted(len(report['to_retract']), 'entry', 'entries')} did not count any more at the source and will count "
            f"here; retract them when the views show them: {', '.join(report['to_retract'][:SHOWN_LINES])}"
        )


def _retire_ended(there: Target, done: Import) -> None:
    """Retract what was retracted, corrected or found outdated at the source, so that it does not come back as current."""
    if not done.ended:
        return
    with sync_client(there) as journal:
        for line in done.ended:
            standing, entry_id = line.standing or {}, line.record["id"]
            workspace_id = line.record.get("workspace_id")
            reason = str(standing.get("reason") or "").strip() or "as at the source of the import"
            fields: dict[str, Any] = {"reason": reason[:_REASON_CHARS], "workspace_id": workspace_id}
            now = journal.get(entry_id, workspace_id=workspace_id).standing
            if now is not None and now.state == standing["state"]:
                continue  # an entry that was imported, too, names it in `supersedes`
            replaced = standing["state"] == State.SUPERSEDED and standing.get("by")
            how = {"superseded_by": str(standing["by"])} if replaced else {"stale": standing["state"] == State.STALE}
            try:
                try:
                    journal.retract(entry_id, **how, **fields)
                except NotFound:  # what replaced it may be left out
                    journal.retract(entry_id, **fields)
            except NotAllowed:
                say("entries that did not count any more at the source count here: only OWNER and ADMIN retract them")
                return
            done.retired += 1


def _behind(there: Target, where: Where, last_seq: int) -> int | None:
    """The number of sequences by which the views are behind after a short wait; None if the service does not answer."""
    from .run import find_again, views_behind

    if not last_seq:
        return 0
    with sync_client(find_again(there, where)) as journal:
        return views_behind(journal, last_seq)


def _check_file(file: str | None, options: ImportOptions) -> None:
    if file is None:
        raise click.BadParameter("name a file, or - for stdin", param_hint="FILE")
    for name, given in {
        "--dry-run": options.dry_run,
        "--agent": options.agent,
        "--crew": options.crew,
        "--promote": options.promote,
    }.items():
        if given:
            raise click.BadParameter("goes with --from", param_hint=name)
    if file != STDIN and not Path(file).exists():
        raise click.BadParameter(f"there is no file {file}", param_hint="FILE")
    if file != STDIN and (Path(file).is_dir() or Path(file).suffix.lower() in NOTE_SUFFIXES):
        raise _are_notes(file, f"{file} is not a file with one entry a line")
    if file != STDIN and not Path(file).is_file():
        raise click.BadParameter(f"{file} is not a regular file; a pipe is read with `import -`", param_hint="FILE")
    if file != STDIN and not _holds_lines(Path(file)):
        raise click.BadParameter(
            f"{file} is an archive or one JSON array, not one entry a line: name its format, such as --from chatgpt",
            param_hint="FILE",
        )


def _are_notes(file: str, problem: str) -> InvalidQuery:
    typed = f"crew-journal palace import {shlex.quote(file)}"
    return InvalidQuery(problem, hint=f"`{typed}` files notes in Markdown; --from names other formats", field="file")


def _holds_log(file: Path) -> bool:
    from ....schemas.chain.log_file import is_log

    with file.open("rb") as opened:
        return is_log(opened.read(_LOG_HEAD))


def _import_log(file: Path, where: Where, options: ImportOptions) -> dict[str, Any]:
    """Take over a workspace with its proofs, if the whole file is sound.

    Raises:
        VerificationFailed: Names the first lines that are not; nothing is imported.
    """
    from ....schemas.chain.log_file import LogFileCheck, log_lines

    report = checked_export(file, options.public_key)
    if report.count:
        lines = "; ".join(f"line {found.line}: {found.text}" for found in report.breaks[:_SHOWN])
        raise VerificationFailed(
            f"{file} is not what was exported ({counted(report.count, 'break')}): {lines}",
            hint="nothing was imported; get the file again",
        )
    if options.workspace not in (None, report.workspace_id):
        raise click.BadParameter(f"the file is of the workspace {report.workspace_id}", param_hint="--workspace")
    if not report.checkpoint:
        raise VerificationFailed(f"{file} has no checkpoint", hint="export it again: nothing proves its messages")
    gone = report.erased
    total: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    proof: dict[str, Any] = {
        "public_key": report.public_key,
        "checkpoint": report.checkpoint,
        "workspace_id": report.workspace_id,
    }
    with (
        client(where, create=True) as journal,
        file.open("rb") as opened,
        progress_bar("import", report.messages) as bar,
    ):
        batch: list[dict[str, Any]] = []
        size = 0

        def send(**more: Any) -> Any:
            answer = journal.import_log(messages=batch, **proof, **more)
            for name in ("imported", "repeated"):
                total[name] += getattr(answer, name)
            left_out.update(answer.left_out)
            batch.clear()
            return answer

        for number, message in enumerate(log_lines(opened, LogFileCheck()), 1):
            if any(first <= message.seq <= last for first, last in gone):
                total["erased"] += 1
                continue
            parts = {"headers": message.block, "body": message.body}
            encoded = {name: base64.b64encode(value).decode() for name, value in parts.items()}
            batch.append({"seq": message.seq, "subject": message.subject, **encoded})
            size += len(message.body) + len(message.block)
            if len(batch) == BATCH_LINES or size >= REQUEST_BYTES // 2:
                send()
                size = 0
                bar(number)
        last = send(last=True, erased=format_ranges(gone), imported=total["imported"])
        if last.erasure_id is not None:
            total["erased_here"] = wait_erased(journal, report.workspace_id, last.erasure_id)
    return {
        "file": str(file),
        "workspace": report.workspace_id,
        "public_key": report.public_key,
        "imported": total["imported"],
        "repeated": total["repeated"],
        "erased": total["erased"],
        "left_out": dict(left_out),
        "erasure_id": last.erasure_id,
        "erased_here": total["erased_here"],
        "recorded_at": last.seq,
    }


def _print_log(report: Mapping[str, Any]) -> None:
    print(
        f"imported {report['imported']:,} messages of the workspace {safe(report['workspace'])}, already there "
        f"{report['repeated']:,}, left out {sum(report['left_out'].values()):,}"
    )
    if report["left_out"]:
        say(f"left out: {_named(report['left_out'])}")
    if report["erasure_id"]:
        say(f"erased there since the last import, and now here: {counted(report['erased_here'], 'message')}")
    say(f"signed by {report['public_key']}; recorded as journal.imported at {report['recorded_at']:,}")


def _holds_lines(file: Path) -> bool:
    with file.open("rb") as opened:
        return not opened.read(4).lstrip().startswith((b"PK\x03\x04", b"["))


def _selection(file: str | None, options: ImportOptions) -> Selection:
    """What ``--from`` and FILE name; without FILE the place where that program keeps its files."""
    name = str(options.source)
    if name in ("markdown", "md", "notes", "obsidian"):
        raise _are_notes(file or "FOLDER", f"{name} is not a format of --from")
    if name not in SOURCES:
        raise click.BadParameter(f"{name} is not one of {', '.join(SOURCES)}", param_hint="--from")
    source = SOURCES[name]
    if file is None and source.usual is None:
        raise click.BadParameter(f"name the file that {name} exported", param_hint="FILE")
    path = Path(file) if file is not None else Path.home() / str(source.usual)
    if not path.exists():
        raise click.BadParameter(f"there is no file or directory {path}", param_hint="FILE")
    return Selection(name, source, path, options.agent, options.crew, options.promote)


def import_file(
    file: str,
    there: Target,
    where: Where,
    options: ImportOptions,
    selection: Selection | None = None,
    total: int | None = None,
) -> Import:
    """Import a file, stdin if it is ``-``, or a selection; ``where`` finds the service ``there`` again after a restart.

    A file is checked to its end before its first line is sent, unless bad lines are set aside; stdin can be read only once.

    Args:
        file: The file.
        there: The service.
        where: Options that name it.
        options: How to import.
        selection: What to import instead of the file.
        total: Number of submissions of the selection.

    Raises:
        InvalidEntry: If there is a bad line; names every problem of its batch. From stdin, earlier batches are
            imported.
        CrewJournalError: An error of the service.
    """
    import asyncio

    from .run import Sender

    with ExitStack() as stack:
        kept: StateFile | None = None
        source: BinaryIO
        if selection is not None:
            source, state = io.BytesIO(), ImportState(str(selection.path))
        elif file == STDIN:
            source, state = sys.stdin.buffer, ImportState(STDIN)
        else:
            source = stack.enter_context(Path(file).open("rb"))
            total = Path(file).stat().st_size
            folder = there.data_dir or settings_from().cache_dir
            kept = StateFile(folder / "imports", Path(file), _into(there, options))
            state = kept.fresh() if options.restart else _resumed(kept, source, there, options)
        resumed_from = state.line + 1 if state.line and options.from_line is None else None
        if options.from_line is not None:
            if options.from_line > state.line + 1:  # a later import must send the lines between
                kept = None
            state = _skip_to(source, state, options.from_line)
        elif state.offset:
            source.seek(state.offset)
        if selection is None and file != STDIN and options.skip_invalid is None:
            _refuse_bad_lines(source, state, options.workspace)
        aside = stack.enter_context(options.skip_invalid.open("ab")) if options.skip_invalid is not None else None
        bar = stack.enter_context(progress_bar("import", total))
        done = Import(source=source, state=state, kept=kept, aside=aside, bar=bar, resumed_from=resumed_from)
        stack.callback(done.close)
        batches = (
            read_batches(source, offset=state.offset, line=state.line, workspace=options.workspace)
            if selection is None
            else selection.batches(Notes(), options.workspace)
        )
        asyncio.run(_send_all(done, batches, Sender(there, where), options))
        return done


async def _send_all(done: Import, batches: Iterable[LineBatch], sender: Sender, options: ImportOptions) -> None:
    from .run import ImportRun

    skips = options.skip_invalid is not None
    run = ImportRun(
        sender.send, timeout_s=options.timeout_s, skip_invalid=skips, waiting=done.waiting, held=sender.held
    )
    try:
        await run.run(batches, done.acked)
    finally:
        await sender.close()


def _resumed(kept: StateFile, source: BinaryIO, there: Target, options: ImportOptions) -> ImportState:
    """The state from which to resume; the beginning if the journal does not hold the entries that were sent before."""
    from .run import still_held

    state = kept.load(source)
    if not state.line:
        return state
    if state.last_seq:
        with sync_client(there) as journal:
            if still_held(journal, state):
                return state
    if options.from_line is None:
        what = "does not show what was sent" if state.last_seq else "took nothing of what was sent"
        say(f"the journal {what} before (up to line {state.line:,}): starting again; nothing is stored twice")
    return kept.fresh()


def _skip_to(source: BinaryIO, state: ImportState, from_line: int) -> ImportState:
    offset, line = 0, 0
    while line + 1 < from_line and (raw := source.readline(MAX_LINE_BYTES)):
        offset += len(raw)
        line += raw.endswith(b"\n")
    return replace(state, offset=offset, line=line)


def _refuse_bad_lines(source: BinaryIO, state: ImportState, workspace: str | None) -> None:
    """Check the rest of the file, so that nothing is imported if a line is bad; the file's position does not change.

    Raises:
        InvalidEntry: Names every problem of the first batch with bad lines.
    """
    start = source.tell()
    for batch in read_batches(source, offset=state.offset, line=state.line, workspace=workspace):
        if batch.bad:
            raise refusal(batch.bad)
    source.seek(start)


def _into(there: Target, options: ImportOptions) -> str:
    """A key of the import's target; it contains the token, because the token determines the entries' workspace."""
    address = "" if there.data_dir is not None else there.url
    return f"{address}\x00{options.workspace or ''}\x00{there.token}"

"""``import``: a JSONL file into the journal, resumable, repeatable, and patient with a service that comes and goes.

Invariant: an entry counts once, however often and from wherever its file is imported; a batch with a bad line is not
published in part unless the bad lines are asked to be set aside.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final

import typer

from ..groups import grouped
from ..options import Json, Where

if TYPE_CHECKING:
    from ..connection import Target
    from ..output import Progress
    from .run import BatchAck
    from .state import ImportState, StateFile

DEFAULT_TIMEOUT_S: Final = 300.0
"""Seconds without an ack until an import gives up: a restart after a crash takes at most two minutes."""
STDIN: Final = "-"
SHOWN_LINES: Final = 20
"""Lines named on stderr because their ids are taken: a screen; a file of them is what --skip-invalid writes."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How to import.

    Attributes:
        workspace: Put every entry there instead of where it says.
        timeout_s: Seconds to wait for a service that is away.
        skip_invalid: File for bad lines; None to stop at the first batch that has one.
        restart: Forget how far a former import came.
        from_line: First line to send, from 1; None to go on where the last import stopped.
    """

    workspace: str | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    skip_invalid: Path | None = None
    restart: bool = False
    from_line: int | None = None


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of an import.

    Attributes:
        before: How far former imports of the file had come.
        after: How far it is now.
        taken: Lines left out this time, because their id belongs to another entry.
        last_seq: Highest sequence acked this time, 0 if nothing was sent.
    """

    before: ImportState
    after: ImportState
    taken: int
    last_seq: int


@grouped
def import_command(
    file: Annotated[str, typer.Argument(metavar="FILE.jsonl", help="The file, or - for stdin.")],
    restart: Annotated[bool, typer.Option("--restart", help="Send every line again, from the first one.")] = False,
    from_line: Annotated[
        int | None, typer.Option("--from-line", min=1, help="Number of the first line to send; lines count from 1.")
    ] = None,
    skip_invalid: Annotated[
        Path | None,
        typer.Option("--skip-invalid", dir_okay=False, help="Write bad lines to this file and go on."),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, help="Seconds to wait while the service cannot be reached.")
    ] = DEFAULT_TIMEOUT_S,
    workspace: Annotated[
        str | None,
        typer.Option("--workspace", "-w", help="Workspace for all entries, whatever workspace they name."),
    ] = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Import a JSONL file, one entry per line. Resumes where it stopped; repeating it changes nothing.

    Entries without an id get one that follows from line number and content. A batch (500 lines) with a bad line is not
    published: every problem of it is named by line, the exit code is 2, and what came before it stays imported. A line
    whose id belongs to another entry is named and left out; the import goes on, and its exit code is 1.
    """
    from ..connection import target
    from ..output import emit

    if file != STDIN and not Path(file).is_file():
        raise typer.BadParameter(f"there is no file {file}", param_hint="FILE.jsonl")
    options = ImportOptions(workspace, timeout, skip_invalid, restart, from_line)
    began = time.monotonic()
    with target(where, create=True) as there:
        done = import_file(file, there, where, options)
        seconds = time.monotonic() - began
        behind = _behind(there, where, done.last_seq)
    before, after = done.before, done.after
    sent = after.imported + after.repeated - before.imported - before.repeated
    report = {
        "file": after.path,
        "imported": after.imported - before.imported,
        "repeated": after.repeated - before.repeated,
        "skipped": after.skipped - before.skipped,
        "taken": done.taken,
        "resumed_from_line": before.line + 1 if before.line else None,
        "last_line": after.line,
        "last_seq": after.last_seq or None,
        "views_behind": behind,
        "seconds": round(seconds, 3),
        "entries_per_second": round(sent / seconds) if seconds > 0 else None,
    }
    if json_output:
        emit(report)
    else:
        _show(report, before, after, sent)
    if done.taken and skip_invalid is None:
        from ....schemas.errors import EntryConflict

        raise EntryConflict(
            f"{done.taken} lines were left out: their ids belong to other entries",
            hint="give them ids of their own; an entry that corrects another names it in refs.parent_entry_id",
        )


def _show(report: dict[str, Any], before: ImportState, after: ImportState, sent: int) -> None:
    from ..output import say

    if before.line and not sent and not report["skipped"]:
        but = f", but for {after.skipped:,} that were left out" if after.skipped else ""
        say(f"nothing new: all {after.line:,} lines were sent before{but} (--restart sends them again)")
    print(
        f"imported {report['imported']:,}, already there {report['repeated']:,}, left out {report['skipped']:,} "
        f"in {report['seconds']:.1f} s; last sequence {after.last_seq}"
    )
    if report["views_behind"]:
        say(
            f"the views are behind by {report['views_behind']:,} sequences: until they are not, recall and list find fewer "
            "entries (see `crew-journal status`)"
        )


def _behind(there: Target, where: Where, last_seq: int) -> int | None:
    """By how many sequences the views are behind what was sent, after a while; None if nobody says."""
    from ....schemas.errors import CrewJournalError
    from ..connection import resolve, sync_client
    from .views_behind import views_behind

    if not last_seq:
        return 0
    if not there.local and there.data_dir is not None:
        with contextlib.suppress(CrewJournalError):  # nobody says, then; the import itself is done
            there = resolve(where) or there  # it may have been started anew meanwhile
    with sync_client(there) as journal:
        return views_behind(journal, last_seq)


def import_file(file: str, there: Target, where: Where, options: ImportOptions) -> Imported:
    """Import a file, or stdin if it is ``-``.

    Args:
        file: Its path.
        there: The service.
        where: How it was found, to find it again after a restart.
        options: How.

    Returns:
        What became of it.

    Raises:
        InvalidEntry: At a batch with bad lines.
        CrewJournalError: What the service answered.
    """
    from ..output import say
    from .state import ImportState, StateFile

    with ExitStack() as stack:
        if file == STDIN:
            state = ImportState(STDIN, 0, "")
            return _import_open(sys.stdin.buffer, None, state, there, where, options, stack)
        source = stack.enter_context(Path(file).open("rb"))
        kept = StateFile(_state_dir(there), Path(file), _into(there, options))
        state = kept.fresh(source) if options.restart else kept.load(source)
        if state.line and not (state.last_seq and _still_held(there, state)):
            if options.from_line is None:
                what = "does not show what was sent" if state.last_seq else "took nothing of what was sent"
                say(f"the journal {what} before (up to line {state.line:,}): starting again; nothing is stored twice")
            state = kept.fresh(source)
        if options.from_line is not None:
            if options.from_line > state.line + 1:  # lines between were never sent: a later import begins before them
                return _import_open(source, None, kept.fresh(source), there, where, options, stack)
            state = replace(state, offset=0, line=0, imported=0, repeated=0, skipped=0)
        return _import_open(source, kept, state, there, where, options, stack)


def _still_held(there: Target, state: ImportState) -> bool:
    from ..connection import sync_client
    from .still_held import still_held

    with sync_client(there) as journal:
        return still_held(journal, state)


def _import_open(
    source: BinaryIO,
    kept: StateFile | None,
    state: ImportState,
    there: Target,
    where: Where,
    options: ImportOptions,
    stack: ExitStack,
) -> Imported:
    from ..output import progress_bar
    from .run import ImportRun
    from .sender import Sender

    begun = state
    if options.from_line is not None:
        state = _skip_to(source, state, options.from_line)
    elif state.offset:
        source.seek(state.offset)
    aside = stack.enter_context(options.skip_invalid.open("ab")) if options.skip_invalid is not None else None
    total = None if state.path == STDIN else Path(state.path).stat().st_size
    bar = stack.enter_context(progress_bar("import", total))
    keeper = _Keeper(state, source, kept, aside, bar)
    sender = Sender(there, where)
    run = ImportRun(
        sender.send,
        timeout_s=options.timeout_s,
        skip_invalid=options.skip_invalid is not None,
        waiting=lambda why: bar.update(keeper.state.offset, note=f"waiting for the service: {why}"),
    )

    async def whole() -> None:
        from .lines import read_batches

        lines = read_batches(source, offset=state.offset, line=state.line, workspace=options.workspace)
        try:
            await run.run(lines, keeper.acked)
        finally:
            await sender.close()

    try:
        asyncio.run(whole())
    finally:
        keeper.save()
    return Imported(begun, keeper.state, keeper.taken, keeper.last_seq)


class _Keeper:
    """Counts what was acked, in order, and keeps it."""

    def __init__(
        self, state: ImportState, source: BinaryIO, kept: StateFile | None, aside: BinaryIO | None, bar: Progress
    ) -> None:
        self.state = state
        self._source = source
        self._kept = kept
        self._aside = aside
        self._bar = bar
        self._began = time.monotonic()
        self._sent = 0
        self.taken = 0
        self.last_seq = 0

    def acked(self, ack: BatchAck) -> None:
        """A batch is in the journal, and all before it."""
        from ..output import say

        repeated = sum(1 for entry in ack.sent if entry.repeated)
        state = self.state
        last = max(ack.sent, key=lambda entry: entry.seq, default=None)
        if last is not None:
            self.last_seq = max(self.last_seq, last.seq)
            if last.seq > state.last_seq:
                state = replace(state, last_seq=last.seq, last_id=last.id, last_workspace=last.workspace)
        self.state = replace(
            state,
            offset=ack.batch.end_offset,
            line=ack.batch.end_line,
            imported=state.imported + len(ack.sent) - repeated,
            repeated=state.repeated + repeated,
            skipped=state.skipped + len(ack.bad) + len(ack.taken),
        )
        left_out = sorted((*ack.bad, *ack.taken), key=lambda line: line.number)
        if self._aside is not None and left_out:
            self._aside.writelines(line.raw + b"\n" for line in left_out)
            self._aside.flush()
        for line in ack.taken[: max(0, SHOWN_LINES - self.taken)]:
            say(f"line {line.number}: {line.problems[0].problem}")
        self.taken += len(ack.taken)
        if self._kept is not None:
            self._kept.save(self.state, self._source)
        self._sent += len(ack.sent)
        pace = self._sent / max(time.monotonic() - self._began, 1e-9)
        self._bar.update(self.state.offset, note=f"{self._sent:,} entries, {pace:,.0f}/s")

    def save(self) -> None:
        """Keep the state as it is now, and say how many lines were left out unnamed."""
        from ..output import say

        if self.taken > SHOWN_LINES:
            say(f"and {self.taken - SHOWN_LINES:,} more lines whose ids belong to other entries")
        if self._kept is not None:
            self._kept.save(self.state, self._source, now=True)


def _skip_to(source: BinaryIO, state: ImportState, from_line: int) -> ImportState:
    offset, line = 0, 0
    while line + 1 < from_line and (raw := source.readline()):
        offset += len(raw)
        line += 1
    return replace(state, offset=offset, line=line)


def _state_dir(there: Target) -> Path:
    if there.data_dir is not None:
        return there.data_dir / "imports"
    from ....schemas.settings import Settings

    return Settings().cache_dir / "imports"


def _into(there: Target, options: ImportOptions) -> str:
    address = "" if there.data_dir is not None else there.url
    return f"{address}\x00{options.workspace or ''}\x00{there.token}"  # which says where lines go that do not; it is hashed

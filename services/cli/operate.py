"""``status``, ``rebuild``, ``verify`` and ``dlq``: inspect and repair a journal.

Invariant: views are changed and checked only in the process that owns them; the command sends the request, shows the
progress and converts the result to an exit code.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import click

from ...schemas.core.errors import (
    CrewJournalError,
    InvalidQuery,
    JournalDamaged,
    NotFound,
    RefusedByOneView,
    Unavailable,
    VerificationFailed,
)
from ...schemas.core.sequence_set import size_of
from ...schemas.operate.operations import DISCARD_DEAD_LETTER, RETRY_DEAD_LETTER
from ..printable import safe
from .commands import Argument, CommandGroup, Option
from .connection import client
from .options import Fields, Json, Where, complete_view
from .output import age, counted, emit, plain, print_pairs, progress_bar, say, show, size_text

if TYPE_CHECKING:
    from ...schemas.chain.log_file import LogFileReport

# ``status`` on one screen: problems with their start times first, then a line for each part.


Report = Mapping[str, Any]
_NAMED: Final = 3
"""Views that are named; of more, the number."""
_AT_REST: Final = "running, 0 to do"
_SWEEPS: Final = 10
"""Sweeps that are shown: more than one workspace has."""


def status_lines(report: Report) -> Iterator[tuple[str, str]]:
    """Name and text of each line, from the answer of ``GET /v1/status``."""
    folding = report.get("folding") or {}
    yield "ready", "yes" if report.get("ready") else "NO"
    yield from (("problem", str(problem)) for problem in report.get("problems") or ())
    yield "journal", _journal(report)
    yield "views", _views(report, folding)
    for view in folding.get("laggards") or ():
        if view.get("error"):
            left = f"{view['projection']} left the group at {view['seq']:,}: {view['error']}{_since(view)}"
            yield "suspended", f"{left}; the others go on"
    yield from (("broker says", str(line)) for line in (report.get("journal_damage") or {}).get("broker_said") or ())
    if aside := report.get("views_put_aside"):
        yield "old views", f"rebuilt at the start: {aside['reason']}; the old file is kept as {aside['name']}"
    for name in ("folding", "feed"):
        if part := report.get(name):
            yield name, _state(part, part.get("state") or ("stopped" if part.get("stopped") else "running"))
    if parked := (report.get("dead_letters") or {}).get("parked"):
        yield "dead letters", f"{counted(parked, 'event')} parked: `crew-journal dlq list`"
    if broker := report.get("broker"):
        yield "broker", _broker(broker, report.get("connection") or {})
    if canary := report.get("canary"):
        yield "canary", _state(canary, "ok" if canary.get("ok") else "FAILS")
    if (ingest := report.get("ingest")) and (ingest.get("requests") or ingest.get("error")):
        yield "ingest", _ingest(ingest)
    if disk := report.get("disk"):
        yield "disk", f"{size_text(disk['free_bytes'])} free of {size_text(disk['total_bytes'])}"
    if embedder := report.get("embedder"):
        yield "embedder", _embedder(embedder)
    if vectors := report.get("embeddings"):
        refused = f"; {vectors['refused']:,} refused" if vectors.get("refused") else ""
        yield "vectors", f"{vectors['count']:,} of {vectors['embeddable']:,} entries that need one{refused}"
    at_rest = 0
    for reactor in report.get("reactors") or ():
        text = _state(reactor, _reactor(reactor))
        at_rest += text == _AT_REST
        if text != _AT_REST:
            yield reactor["name"], text
    if at_rest:
        yield "reactors", f"{at_rest:,} running with nothing to do"
    yield from _sweeps((report.get("memory") or {}).get("sweeps") or ())
    if hot := report.get("hot_index"):
        memory = f"{size_text(hot['bytes'])} of {size_text(hot['budget_bytes'])}"
        yield (
            "hot indexes",
            f"{counted(hot['workspaces'], 'workspace')}, {counted(hot['documents'], 'entry', 'entries')}, {memory}",
        )
    of_memory = report.get("memory") or {}
    if error := of_memory.get("error"):
        yield "memory", str(error)
    if error := (of_memory.get("operators") or {}).get("error"):
        yield "operator models", f"none are made: {error}"


def _sweeps(sweeps: Sequence[Report]) -> Iterator[tuple[str, str]]:
    """The counts of each sweep's last run, newest first; limited to some workspaces."""
    newest = sorted(
        (report for report in sweeps if report.get("finished_at")), key=lambda report: str(report["finished_at"])
    )[::-1]
    for sweep in newest[:_SWEEPS]:
        counts = ", ".join(f"{name} {count:,}" for name, count in (sweep.get("counts") or {}).items() if count)
        error = f"; {sweep['error']}" if sweep.get("error") else ""
        text = f"{sweep['workspace_id']}, {sweep['finished_at']}: {counts or 'nothing to do'}{error}"
        yield f"sweep {sweep['sweep']}", text
    if len(newest) > _SWEEPS:
        yield "sweeps", f"{len(newest) - _SWEEPS} more, of all workspaces: --json"


def _journal(report: Report) -> str:
    stream = report.get("stream") or {}
    if "entries" not in report:
        return "its size is shown to OWNER and ADMIN"
    text = f"{(report['entries'] or {}).get('count') or 0:,} entries"
    if unavailable := stream.get("unavailable"):
        return f"{text} in the views; stream: {unavailable}"
    return text + (f"; stream head {stream['head']:,}, {size_text(stream['bytes'])}" if stream else "")


def _views(report: Report, folding: Report) -> str:
    views = report.get("projections") or {}
    behind = sorted(((-view["lag"], name) for name, view in views.items() if view.get("lag")))
    text = f"{f'all {len(views)} ' if views else ''}at {report.get('view_seq') or 0:,}"
    if behind:
        most = -behind[0][0]
        every = len(behind) == len(views)
        names = "all" if every else ", ".join(name for _, name in behind[:_NAMED])
        more = "" if every or len(behind) <= _NAMED else f" and {len(behind) - _NAMED} more"
        text = f"{counted(len(behind), 'view')} behind by {most:,} at most ({names}{more}){_left(report, most)}"
    return text + "".join(f"; {name} parked {count:,}" for name, count in sorted((folding.get("parked") or {}).items()))


def lag_of(report: Report) -> int:
    """Sequences by which the view that is furthest behind is behind."""
    return max((view.get("lag") or 0 for view in (report.get("projections") or {}).values()), default=0)


def _left(report: Report, lag: int) -> str:
    rate = report.get("per_second")
    if rate is None:
        return ""
    return f", {rate:,.0f}/s, {age(lag / rate)} left" if rate > 0 else ", no progress within a second"


def _broker(broker: Report, connection: Report) -> str:
    managed, durability = broker.get("managed"), broker.get("durability")
    kind = f"nats-server {broker.get('version') or '?'}, "
    kind += f"managed, {durability}" if managed else f"external{f', durability {durability}' if durability else ''}"
    trouble = [] if connection.get("connected", True) else [f"NOT CONNECTED{_since(connection)}"]
    if managed and not broker.get("running", True):
        trouble.append("NOT RUNNING")
    if broker.get("restarts"):
        trouble.append(f"restarted {broker['restarts']} times")
    trouble += [str(part["last_error"]) for part in (broker, connection) if part.get("last_error")]
    return "; ".join([f"{kind}, {broker.get('url')}", *trouble])


def _ingest(ingest: Report) -> str:
    """Requests of agents over NATS, and why some were not answered."""
    entries = counted(ingest["entries"], "entry", "entries")
    text = f"{counted(ingest['requests'], 'request')} over NATS, {entries}, {ingest['refused']:,} refused"
    if ingest["overloaded"]:
        text += f", {ingest['overloaded']:,} of them for overload, last at {ingest['overloaded_at']}"
    if ingest["unanswerable"]:
        text += f"; {ingest['unanswerable']:,} were not requests (no inbox to answer to) and are not stored"
    return text + (f"; {ingest['error']}" if ingest.get("error") else "")


def _embedder(embedder: Report) -> str:
    text = f"{embedder.get('model') or embedder.get('kind') or 'none'}, {embedder.get('mode')}"
    why = embedder.get("reason")
    if error := embedder.get("error"):
        text += f"; {embedder.get('message') or error}{_since(embedder)}"
        why = embedder.get("hint")
    return text + (f" ({why})" if why else "")


def _reactor(reactor: Report) -> str:
    """A reactor's backlog and failures; a text that fails individually is not an error of the reactor."""
    text = f"{reactor.get('state')}, {reactor.get('pending') or 0:,} to do"
    counts = reactor.get("counts") or {}
    if put_off := counts.get("put_off"):
        text += f"; {put_off:,} put off, to be tried again"
    if failed := counts.get("failed"):
        text += f"; failed {failed:,} times since the start (the log names what and why)"
    return text


def _state(part: Report, state: str) -> str:
    """A part's state, and its trouble with the time it began."""
    trouble = part.get("last_error") or part.get("error") or part.get("stopped")
    return f"{state}; {trouble}{_since(part)}" if trouble else state


def _since(part: Report) -> str:
    return f", since {part['since']}" if part.get("since") else ""


cluster = CommandGroup(help="Several nodes on one journal: show them, take slots from one.")
dlq = CommandGroup(help="Dead letters: events that could not be folded. List, retry or discard them.")
PACE_S: Final = 1.0
"""Seconds between two readings of views that are behind, to compute their rate."""
Seqs = Annotated[list[int], Argument(metavar="SEQ…", help="Sequences of the dead letters.")]


def status(
    workspace: Annotated[
        str | None, Option("--workspace", "-w", help="Count entries and vectors of this workspace; by default of all.")
    ] = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Show how the journal is doing: what is wrong and since when, views, broker, disk, embedder; --json has all of it."""
    with client(where, embedder="auto") as journal:
        report = plain(journal.status(workspace_id=workspace))
        if not json_output and lag_of(report):
            began = time.monotonic()
            time.sleep(PACE_S)
            later = plain(journal.status(workspace_id=workspace))
            report = later | {"per_second": (later["view_seq"] - report["view_seq"]) / (time.monotonic() - began)}
    show(report, json_output, lambda report: print_pairs(status_lines(report)))


def rebuild(
    projections: Annotated[
        list[str] | None,
        Argument(metavar="[PROJECTION]…", help="Views to rebuild; all if left out.", autocompletion=complete_view),
    ] = None,
    accept_loss: Annotated[
        bool,
        Option(
            "--accept-loss",
            help="Rebuild although the journal has lost entries; run `salvage` first. The old file is kept.",
        ),
    ] = False,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Build the views again from the journal, then replace the live ones; exit code 1 if one cannot be built."""
    with client(where) as journal:
        result = follow("rebuild", journal.rebuild(projections or None, accept_loss=accept_loss))
    failed = result.get("failed") or {}
    if json_output:
        emit(result)
        raise click.exceptions.Exit(CrewJournalError.exit_code if failed else 0)
    if result["projections"]:
        names = counted(len(result["projections"]), "view")
        if projections:
            names = ", ".join(safe(name) for name in result["projections"])
        parked = (
            f"; {counted(result['parked'], 'event')} parked (crew-journal dlq list)" if result.get("parked") else ""
        )
        print(f"rebuilt {names} up to sequence {result['seq']:,}{parked}")
    if lost := result.get("lost"):
        say(f"accepted as lost, and recorded: {loss_text(lost)}; the old views are kept as {result['kept_as']}")
    if failed:
        reasons = "; ".join(f"{name} cannot be rebuilt: {why}" for name, why in sorted(failed.items()))
        raise CrewJournalError(reasons, hint="fix the projection, raise its version, and start again")


def verify(
    chain: Annotated[
        bool, Option("--chain", help="Check the stream against its seals and the checkpoints outside it instead.")
    ] = False,
    exported: Annotated[
        Path | None,
        Option(
            "--export", metavar="FILE", exists=True, dir_okay=False, help="Check a file of `export --proofs` instead."
        ),
    ] = None,
    public_key: Annotated[
        str | None, Option("--public-key", help="With --export: the key that must have signed it.")
    ] = None,
    anchors: Annotated[
        list[Path] | None,
        Option(
            "--anchor", exists=True, dir_okay=False, help="With --export: a file of checkpoints, such as `up --anchor`."
        ),
    ] = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Compare the live views with a fresh rebuild; exit code 6 and the differing rows if they are not the same.

    With --export, a file is checked without a journal: messages, tree, checkpoints and signatures.
    """
    if exported is not None:
        _verify_export(exported, public_key, anchors or (), json_output=json_output)
        return
    if public_key is not None or anchors:
        raise click.BadParameter("goes with --export", param_hint="--public-key" if public_key else "--anchor")
    with client(where) as journal:
        if chain:
            _verify_chain(journal.verify_chain().model_dump(), json_output=json_output)
            return
        result = follow("verify", journal.verify())
    if json_output:
        emit(result)
        raise click.exceptions.Exit(0 if result["equal"] else VerificationFailed.exit_code)
    for view in result["projections"]:
        verdict = "same" if view["equal"] else "DIFFERS"
        print(f"{safe(view['projection']):<16}  {verdict:<7}  {counted(view['live']['rows'], 'row')} at {view['seq']}")
        if not view["equal"]:
            _print_differences(view)
    lost = result.get("journal") or {}
    if lost.get("missing") or lost.get("known_entries") or lost.get("views_kept"):
        raise VerificationFailed(
            f"sequences are missing from the journal: {loss_text(lost)}; do not rebuild: the views may be the last copy",
            hint=JournalDamaged.HINT,
        )
    if not result["equal"]:
        raise VerificationFailed(
            "the live views differ from a fresh rebuild",
            hint="`crew-journal rebuild` repairs them; then find out what changed them",
        )
    print("verified: the live views equal a fresh rebuild")


def checked_export(file: Path, public_key: str | None = None, anchors: Sequence[Path] = ()) -> LogFileReport:
    """The report over a file of ``export --proofs``."""
    from ...schemas.chain.log_file import LogFileCheck
    from ..chain.anchors import AnchorFile

    check = LogFileCheck(public_key, [AnchorFile(path).read() for path in anchors])
    with file.open("rb") as lines:
        for line in lines:
            check.take(line)
    return check.report()


def _verify_export(file: Path, public_key: str | None, anchors: Sequence[Path], *, json_output: bool) -> None:
    report = checked_export(file, public_key, anchors)
    if json_output:
        emit({**asdict(report), "breaks": [found._asdict() for found in report.breaks]})
        raise click.exceptions.Exit(VerificationFailed.exit_code if report.count else 0)
    print(
        f"{counted(report.messages, 'message')} of the workspace {safe(report.workspace_id)}, "
        f"sequences 1 to {report.last_seq:,}, sealed up to {report.size:,}"
    )
    known = "" if public_key or anchors else "  (of the file itself: compare it, or give --public-key or --anchor)"
    print(f"{'public key':<13}{safe(report.public_key)}{known}")
    print(f"{'checkpoints':<13}{report.checkpoints:,} fit")
    for name, agreeing in report.anchors.items():
        print(f"{'anchor':<13}{safe(name)}: {counted(agreeing, 'checkpoint')} agree")
    if report.later:
        print(f"{'newer':<13}{counted(report.later, 'checkpoint')} of anchors: the file is from before them")
    print(f"{'elsewhere':<13}{counted(report.elsewhere, 'message')} of other workspaces, as hashes alone")
    if report.erased:
        print(f"{'erased':<13}{counted(size_of(report.erased), 'sequence')}")
    for what, number in (("from before the log", report.unsalted), ("after the last seal", report.unsealed)):
        if number:
            print(f"{'not covered':<13}{counted(number, 'message')} {what}")
    for found in report.breaks:
        print(f"line {found.line:<8}{safe(found.text)}")
    if report.count:
        raise VerificationFailed(
            f"{file} is not what was exported: {counted(report.count, 'break')}", hint="get the file again"
        )
    print("verified: the file holds what was sealed")


def _verify_chain(report: Mapping[str, Any], *, json_output: bool) -> None:
    sound = report["integrity"] and report["completeness"]
    if json_output:
        emit(report)
        raise click.exceptions.Exit(0 if sound else VerificationFailed.exit_code)
    print(f"{counted(report['messages'], 'message')}, sealed up to {report['sealed_to']:,} of {report['last_seq']:,}")
    print(f"{'public key':<13}{report['public_key']}")
    print(f"{'root':<13}{report['root']}")
    for name, agreeing in report["anchors"].items():
        print(
            f"{'anchor':<13}{safe(name)}: {counted(agreeing, 'checkpoint')} agree; {counted(report['seals'], 'seal')}"
        )
    if report["unsalted"]:
        print(f"{'not covered':<13}{counted(report['unsalted'], 'message')} from before the log")
    if report["explained"]:
        print(f"{'explained':<13}{counted(report['explained'], 'sequence')} erased or accepted as lost")
    for found in report["breaks"]:
        print(f"{found['kind']:<13}{found['seq'] or ''} {safe(found['text'])}")
    print(f"{'integrity':<13}{'holds' if report['integrity'] else 'BROKEN'}")
    print(f"{'completeness':<13}{'holds' if report['completeness'] else 'BROKEN'}")
    if not sound:
        raise VerificationFailed(
            f"the journal is not what was sealed: {counted(sum(report['counts'].values()), 'break')}",
            hint="keep the data directory as it is; `crew-journal restore` a backup from before the first break",
        )


def loss_text(lost: Mapping[str, Any]) -> str:
    """The journal's losses in words."""
    missing, known = int(lost.get("missing") or 0), int(lost.get("known_entries") or 0)
    text = f"{missing:,} sequence{'s' if missing != 1 else ''}" + (f" ({lost['sequences']})" if missing else "")
    text += f"; the views hold {known:,} lost entr{'ies' if known != 1 else 'y'}"
    if kept := lost.get("views_kept"):
        text += f"; the end of the journal is lost; {', '.join(kept)} holds it"
    return text


def _print_differences(view: Mapping[str, Any]) -> None:
    """The differing rows of a view: how many, then the first ones, each in a line."""
    if not view["differences"]:
        print(f"  {view['live']['rows']:,} rows live and {view['fresh']['rows']:,} fresh")
    for table, kinds in view["differing"].items():
        print(f"  {safe(table)}: " + ", ".join(f"{count:,} {kind}" for kind, count in kinds.items()))
    for row in view["differences"]:
        key = ", ".join(f"{name} {value}" for name, value in row["key"].items())
        column = f", column {row['column']}" if row.get("column") else ""
        values = f" (live {row['live']}, fresh {row['fresh']})" if row.get("live") is not None else ""
        print(safe(f"    {row['table']}, row {key}{column}: {row['kind']}{values}"))


@dlq.command("retry")
def dlq_retry(
    seqs: Seqs,
    fields: Annotated[dict[str, Any], Fields(RETRY_DEAD_LETTER, without=("seq",))],
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Publish dead letters again, as new events; refused if only one view failed to fold the event."""
    with client(where) as journal:
        _settle(seqs, lambda seq: journal.retry_dead_letter(seq, **fields), json_output)


@dlq.command("discard")
def dlq_discard(
    seqs: Seqs,
    reason: Annotated[str, Option("--reason", help="Why; it is recorded.")],
    asked: Annotated[dict[str, Any], Fields(DISCARD_DEAD_LETTER, without=("seq", "reason"))],
    where: Where,
    json_output: Json = False,
) -> None:
    """Discard dead letters; they stay in the stream and are no longer counted as open."""
    with client(where) as journal:
        _settle(seqs, lambda seq: journal.discard_dead_letter(seq, reason=reason, **asked), json_output)


def _settle(seqs: Iterable[int], settle: Callable[[int], Any], json_output: bool) -> None:
    """Settle each dead letter and report all.

    Raises:
        NotFound: At the end, naming unknown letters; the others are settled.
        InvalidQuery: Likewise, if no letter is unknown but one is not a valid event.
        RefusedByOneView: Likewise, if all remaining letters were refused for this reason.
    """
    letters: list[dict[str, Any]] = []
    kinds = {NotFound: "not_found", InvalidQuery: "invalid", RefusedByOneView: "refused"}
    failed: dict[str, dict[int, CrewJournalError]] = {name: {} for name in kinds.values()}
    for seq in dict.fromkeys(seqs):
        try:
            letters.append(plain(settle(seq)))
        except tuple(kinds) as error:
            failed[kinds[type(error)]][seq] = error
    show(
        {"dead_letters": letters, **{name: list(errors) for name, errors in failed.items()}},
        json_output,
        _print_settled,
    )
    errors = [error for group in failed.values() for error in group.values()]
    if errors:
        unknown = isinstance(errors[0], NotFound)
        hint = "crew-journal dlq list shows what can be settled" if unknown else errors[0].hint
        raise type(errors[0])("; ".join(error.message for error in errors), hint=hint)


def _print_settled(answer: Mapping[str, Any]) -> None:
    for letter in answer["dead_letters"]:
        again = f", published again as {letter['new_seq']}" if letter.get("new_seq") else ""
        print(f"{letter['seq']}  {safe(letter['state'])}{again}")


def _pace(record: Mapping[str, Any], seconds: float) -> str:
    """``1,200 of 5,000 messages, 600/s, 6 s left``."""
    done, total = record["done"], record.get("total")
    text = f"{done:,}{f' of {total:,}' if total else ''} messages"
    if not done or seconds <= 0:
        return text
    left = f", {age((total - done) * seconds / done)} left" if total and total > done else ""
    return f"{text}, {done / seconds:,.0f}/s{left}"


def follow(title: str, records: Iterable[Any]) -> dict[str, Any]:
    """Show progress records as a bar; the last one holds the result.

    Raises:
        Unavailable: If the records end without a result.
    """
    with progress_bar(title, unit="messages") as bar:
        began = time.monotonic()
        for item in records:
            record = plain(item)
            if "result" in record:
                return dict(record["result"])
            if "done" in record:
                bar(record["done"], record.get("total"), note=_pace(record, time.monotonic() - began))
    raise Unavailable(f"{title} ended without a result", hint="see the log of `up`, then try again")

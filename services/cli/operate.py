"""``status``, ``rebuild``, ``verify`` and ``dlq``: looking after a journal.

Invariant: what changes or checks views happens in the process that owns them; the command asks for it, shows its progress
and turns the verdict into an exit code.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final

import click

from ...schemas.errors import (
    CrewJournalError,
    InvalidQuery,
    JournalDamaged,
    NotFound,
    RefusedByOneView,
    Unavailable,
    VerificationFailed,
)
from ...schemas.operations.letters import DISCARD_DEAD_LETTER, RETRY_DEAD_LETTER
from .commands import Argument, CommandGroup, Option
from .completing import complete_view
from .connection import client
from .options import Json, Where
from .output import age, counted, emit, plain, print_pairs, progress_bar, safe, say, show
from .request_options import Fields
from .status_page import lag_of, status_lines

dlq = CommandGroup(help="Dead letters: events that could not be folded. List, retry or discard them.")
PACE_S: Final = 1.0
"""Seconds between two looks at views that are behind, from which their rate follows."""
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


def verify(*, where: Where, json_output: Json = False) -> None:
    """Compare the live views with a fresh rebuild; exit code 6 and the first difference if they are not the same."""
    with client(where) as journal:
        result = follow("verify", journal.verify())
    if json_output:
        emit(result)
        raise click.exceptions.Exit(0 if result["equal"] else VerificationFailed.exit_code)
    for view in result["projections"]:
        verdict = "same" if view["equal"] else "DIFFERS"
        print(f"{safe(view['projection']):<16}  {verdict:<7}  {counted(view['live']['rows'], 'row')} at {view['seq']}")
    lost = result.get("journal") or {}
    if lost.get("missing") or lost.get("known_entries") or lost.get("views_kept"):
        raise VerificationFailed(
            f"sequences are missing from the journal: {loss_text(lost)}; do not rebuild: the views may be the last copy",
            hint=JournalDamaged.HINT,
        )
    if not result["equal"]:
        raise VerificationFailed(
            f"the live views differ from a fresh rebuild: {first_difference(result)}",
            hint="`crew-journal rebuild` repairs them; then find out what changed them",
        )
    print("verified: the live views equal a fresh rebuild")


def loss_text(lost: Mapping[str, Any]) -> str:
    """What the journal has lost, in words."""
    missing, known = int(lost.get("missing") or 0), int(lost.get("known_entries") or 0)
    text = f"{missing:,} sequence{'s' if missing != 1 else ''}" + (f" ({lost['sequences']})" if missing else "")
    text += f"; the views hold {known:,} lost entr{'ies' if known != 1 else 'y'}"
    if kept := lost.get("views_kept"):
        text += f"; the end of the journal is lost; {', '.join(kept)} holds it"
    return text


def first_difference(result: Mapping[str, Any]) -> str:
    """The first row that differs, in words."""
    view = next(view for view in result["projections"] if not view["equal"])
    difference = view.get("difference")
    if not difference:
        return f"{view['projection']}, {view['live']['rows']} rows live and {view['fresh']['rows']} fresh"
    key = ", ".join(f"{name} {value}" for name, value in difference["key"].items())
    column = f", column {difference['column']}" if difference.get("column") else ""
    values = f" (live {difference['live']}, fresh {difference['fresh']})" if difference.get("live") is not None else ""
    return f"{view['projection']}, table {difference['table']}, row {key}{column}: {difference['kind']}{values}"


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
        NotFound: At the end, naming those that are unknown; the others are settled.
        InvalidQuery: Likewise, if none is unknown and one is not an event that could be published again.
        RefusedByOneView: Likewise, if all that remain were refused for that.
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

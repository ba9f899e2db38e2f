"""``status``, ``rebuild``, ``verify`` and ``dlq``: looking after a journal.

Invariant: what changes or checks views happens in the process that owns them; the command asks for it, shows its progress
and turns the verdict into an exit code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

import typer

from .groups import grouped
from .options import DeadLetterSeqs, Json, Reason, Where, Workspace

dlq = typer.Typer(
    help="Dead letters: events that could not be folded. List, retry or discard them.", no_args_is_help=True
)

Names = Annotated[list[str] | None, typer.Argument(metavar="[PROJECTION]…", help="Views to rebuild; all if left out.")]


@grouped
def status(
    workspace: Annotated[
        str | None,
        typer.Option("--workspace", "-w", help="Count entries and vectors of this workspace; by default of all."),
    ] = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Show how the journal is doing: what is wrong and since when, views, broker, disk, embedder; --json has all of it."""
    from .connection import client
    from .output import emit, plain, print_pairs
    from .status_page import status_lines

    with client(where, embedder="auto") as journal:
        report = plain(journal.status(workspace_id=workspace))
    if json_output:
        emit(report)
    else:
        print_pairs(status_lines(report))


@grouped
def rebuild(
    projections: Names = None,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Rebuild although the journal has lost entries; run `salvage` first. The old file is kept.",
        ),
    ] = False,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Build the views again from the journal, then replace the live ones; exit code 1 if one cannot be built."""
    from ...schemas.errors import CrewJournalError
    from .connection import client
    from .output import emit, safe, say

    with client(where) as journal:
        result = follow("rebuild", journal.rebuild(projections or None, accept_loss=accept_loss))
    failed = result.get("failed") or {}
    if json_output:
        emit(result)
        if failed:
            raise typer.Exit(CrewJournalError.exit_code)
        return
    if result["projections"]:
        names = ", ".join(safe(name) for name in result["projections"])
        parked = f"; {result['parked']:,} events are parked (crew-journal dlq list)" if result.get("parked") else ""
        print(f"rebuilt {names} up to sequence {result['seq']:,}{parked}")
    if lost := result.get("lost"):
        say(f"accepted as lost, and recorded: {lack_words(lost)}; the old views are kept as {result['kept_as']}")
    if failed:
        said = "; ".join(f"{name} cannot be rebuilt: {why}" for name, why in sorted(failed.items()))
        raise CrewJournalError(said, hint="fix the projection, raise its version, and start again")


@grouped
def verify(
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Compare the live views with a fresh rebuild; exit code 6 and the first difference if they are not the same."""
    from ...schemas.errors import JournalDamaged, VerificationFailed
    from .connection import client
    from .output import emit, safe

    with client(where) as journal:
        result = follow("verify", journal.verify())
    if json_output:
        emit(result)
        if not agrees(result):
            raise typer.Exit(VerificationFailed.exit_code)
        return
    for view in result["projections"]:
        verdict = "same" if view["equal"] else "DIFFERS"
        print(f"{safe(view['projection']):<16}  {verdict:<7}  {view['live']['rows']:,} rows at {view['seq']}")
    lost = result.get("journal") or {}
    if lost.get("missing") or lost.get("known_entries") or lost.get("views_kept"):
        raise VerificationFailed(
            f"sequences are missing from the journal: {lack_words(lost)}; do not rebuild: the views may be the last copy",
            hint=JournalDamaged.HINT,
        )
    if not agrees(result):
        raise VerificationFailed(
            f"the live views differ from a fresh rebuild: {first_difference(result)}",
            hint="`crew-journal rebuild` repairs them; then find out what changed them",
        )
    print("verified: the live views equal a fresh rebuild")


def lack_words(lost: Mapping[str, Any]) -> str:
    """What the journal has lost, in words."""
    missing, known = int(lost.get("missing") or 0), int(lost.get("known_entries") or 0)
    said = f"{missing:,} sequence{'s' if missing != 1 else ''}" + (f" ({lost['sequences']})" if missing else "")
    said += f"; the views know {known:,} lost entr{'ies' if known != 1 else 'y'}"
    if kept := lost.get("views_kept"):
        said += f"; the journal has lost its end, which {', '.join(kept)} knows"
    return said


def first_difference(result: Mapping[str, Any]) -> str:
    """The first row that differs, in words."""
    for view in result["projections"]:
        if view["equal"]:
            continue
        found = view.get("difference")
        if not found:
            return f"{view['projection']}, {view['live']['rows']} rows live and {view['fresh']['rows']} fresh"
        key = ", ".join(f"{name} {value}" for name, value in found["key"].items())
        column = f", column {found['column']}" if found.get("column") else ""
        return f"{view['projection']}, table {found['table']}, row {key}{column}: {found['kind']}"
    return "none"


@dlq.command("retry")
@grouped
def dlq_retry(
    seqs: DeadLetterSeqs,
    workspace: Workspace = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also if only one view failed to fold it: the others then apply it twice.")
    ] = False,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Publish dead letters again, as new events; refused if only one view failed to fold the event."""
    from .connection import client
    from .output import plain

    with client(where) as journal:
        _settle(
            seqs,
            lambda seq: plain(journal.retry_dead_letter(seq, workspace_id=workspace, force=force)),
            json_output,
        )


@dlq.command("discard")
@grouped
def dlq_discard(
    seqs: DeadLetterSeqs,
    reason: Reason,
    workspace: Workspace = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Discard dead letters; they stay in the stream and are no longer counted as open."""
    from .connection import client
    from .output import plain

    with client(where) as journal:
        _settle(
            seqs,
            lambda seq: plain(journal.discard_dead_letter(seq, reason=reason, workspace_id=workspace)),
            json_output,
        )


def _settle(seqs: Iterable[int], settle: Callable[[int], dict[str, Any]], json_output: bool) -> None:
    """Settle each dead letter and report all.

    Raises:
        NotFound: At the end, naming those that could not be; the others are settled.
        InvalidQuery: Likewise, if none is unknown and one is no event that could be published again.
        RefusedByOneView: Likewise, if all that could not be were refused for that.
    """
    from ...schemas.errors import InvalidQuery, NotFound, RefusedByOneView
    from .output import emit, safe

    letters: list[dict[str, Any]] = []
    missing: dict[int, str] = {}
    invalid: dict[int, InvalidQuery] = {}
    refused: dict[int, RefusedByOneView] = {}
    for seq in dict.fromkeys(seqs):
        try:
            letters.append(settle(seq))
        except NotFound as error:
            missing[seq] = error.message
        except InvalidQuery as error:
            invalid[seq] = error
        except RefusedByOneView as error:
            refused[seq] = error
    if json_output:
        left = {"not_found": list(missing), "invalid": list(invalid), "refused": list(refused)}
        emit({"dead_letters": letters, **left})
    else:
        for letter in letters:
            again = f", published again as {letter['new_seq']}" if letter.get("new_seq") else ""
            print(f"{letter['seq']}  {safe(letter['state'])}{again}")
    others = [*invalid.values(), *refused.values()]
    said = "; ".join([*missing.values(), *(error.message for error in others)])
    if missing:
        raise NotFound(said, hint="crew-journal dlq list shows what can be settled")
    if others:
        raise type(others[0])(said, hint=others[0].hint)


def follow(title: str, records: Iterable[Any]) -> dict[str, Any]:
    """Show progress records as a bar; the last one holds the result.

    Raises:
        Unavailable: If the records end without a result.
    """
    from ...schemas.errors import Unavailable
    from .output import plain, progress_bar

    with progress_bar(title, unit="messages") as bar:
        for item in records:
            record = plain(item)
            if "result" in record:
                return dict(record["result"])
            if "done" in record:
                total = record.get("total")
                bar.update(int(record["done"]), int(total) if total is not None else None)
    raise Unavailable(f"{title} ended without a result", hint="see the log of `up`, then try again")


def agrees(result: Mapping[str, Any]) -> bool:
    """Whether the result of a verification says that live views and rebuild are the same."""
    return bool(result["equal"])


def flat(value: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Nested objects as dotted names; lists of objects by their ``name`` or place."""
    for name, part in value.items():
        path = f"{prefix}{name}"
        if isinstance(part, Mapping):
            yield from flat(part, f"{path}.")
        elif isinstance(part, list) and part and all(isinstance(item, Mapping) for item in part):
            for place, item in enumerate(part):
                yield from flat(item, f"{path}.{item.get('name', place)}.")
        else:
            yield path, "-" if part is None else part

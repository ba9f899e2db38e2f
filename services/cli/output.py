"""Output of commands: data on stdout, everything else on stderr, and no control sequences from memories.

Invariant: agents' text is printed only through ``safe`` and never as rich markup, so that a memory cannot clear the
screen, set the title or hide other output.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from typing import Any, Final

import click

from ..printable import safe as safe

JSON_FLAG: Final = "--json"
_GAP: Final = "  "
_MARGIN: Final = "    "
_ROOM: Final = 24
"""Minimum width for a text next to its lead, so that a line does not hold only one word."""
SEVERITY_COLOURS: Final = {"notice": "cyan", "warn": "yellow", "error": "red"}
_OPTION_OF: Final = {"agent_id": "--agent", "crew_id": "--crew", "workspace_id": "--workspace"}
"""Fields that the hints of the service name, as a person types them."""
Progress = Callable[..., None]
_AGES: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def age(seconds: float) -> str:
    """A duration in its largest whole unit: ``3 d``, ``5 h``, ``12 min``, ``8 s``."""
    return next((f"{int(seconds // size)} {unit}" for size, unit in _AGES if seconds >= size), "now")


def size_text(count: float) -> str:
    """A number of bytes, like ``3.4 GiB``."""
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB"):
        count /= 1024
        if count < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} GiB"


def say(message: str) -> None:
    """A message for the person at the terminal, on stderr, made safe: it may name what others wrote."""
    print(safe(message, keep="\n"), file=sys.stderr, flush=True)


def emit(document: Any, *, one_line: bool = False) -> None:
    """One JSON document on stdout; on a terminal in ASCII, and indented unless it is to be one line."""
    on_terminal = sys.stdout.isatty()
    indent = 2 if on_terminal and not one_line else None
    print(json.dumps(plain(document), indent=indent, ensure_ascii=on_terminal, default=plain), flush=True)


def plain(value: Any) -> Any:
    """An answer of the client as plain JSON values."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def show(answer: Any, as_json: bool, printer: Callable[[Any], None]) -> None:
    """Print an answer as JSON, or for people with ``printer``, which gets plain JSON values."""
    if as_json:
        emit(answer)
    else:
        printer(plain(answer))


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Sequence[str] = (),
    empty: str = "there are none",
) -> None:
    """A table on stdout.

    Args:
        columns: Headings. On a terminal the last column wraps beside the others, or below them if there is no room beside
            them; the others are never cut. In a file or a pipe, a row is one line.
        rows: Cells, made safe here; a hyphen for None.
        right: Headings of the columns of figures.
        empty: Printed on stderr if there are no rows: what is empty, and what to do next.
    """
    from rich.cells import cell_len

    cells = [["-" if cell is None else safe(cell) for cell in row] for row in rows]
    if not cells:
        say(empty)
        return
    widths = [max(map(cell_len, column)) for column in zip(map(safe, columns), *cells, strict=True)]
    indent = sum(width + len(_GAP) for width in widths[:-1])
    beside = not sys.stdout.isatty() or _columns() - indent >= min(_ROOM, widths[-1])

    def aligned(row: Iterable[str]) -> tuple[str, str]:
        """The beginning of a line, and its last cell."""
        parts = []
        for name, cell, width in zip(columns, row, widths, strict=True):
            blanks = " " * (width - cell_len(cell))
            parts.append(blanks + cell if name in right else cell + blanks)
        return "".join(f"{part}{_GAP}" for part in parts[:-1]), parts[-1].rstrip()

    lead, last = aligned(map(safe, columns))
    print(f"{lead}{last}" if beside else lead.rstrip())
    if beside:
        print("─" * min(indent + widths[-1], _columns()))
    for row in cells:
        lead, last = aligned(row)
        if beside:
            print_folded(last, lead)
        else:
            print(lead.rstrip())
            if row[-1] != "-":
                print_folded(row[-1], _MARGIN)


def listing(
    name: str,
    columns: Sequence[str],
    row: Callable[[Mapping[str, Any]], Sequence[object]],
    *,
    right: Sequence[str] = (),
    empty: str,
) -> Callable[[Mapping[str, Any]], None]:
    """A printer of answers: the list ``answer[name]`` as a table; ``row`` has the cells of one item."""
    return lambda answer: print_table(columns, map(row, answer[name]), right=right, empty=empty)


def print_text(text: str) -> None:
    """A text of several lines on stdout, each made safe; nothing for an empty one."""
    if text:
        print("\n".join(safe(line.replace("\t", "    ")) for line in text.removesuffix("\n").split("\n")))


def print_folded(text: object, lead: str) -> None:
    """A text on stdout, made safe; on a terminal it is broken between words and continues below its beginning.

    Args:
        text: The text; its line breaks become blanks.
        lead: What precedes the text; following lines are indented by as many blanks. If a word does not fit beside it, the
            text begins on the next line.
    """
    from rich.cells import cell_len

    line = safe(" ".join(str(text).split()) if "\n" in str(text) else text)
    if sys.stdout.isatty():
        longest = max(map(cell_len, line.split()), default=0)
        if _columns() - cell_len(lead) < longest <= _columns() - len(_MARGIN):
            print(lead.rstrip())
            lead = _MARGIN
        indent = cell_len(lead)
        parts = textwrap.wrap(line, max(_columns() - indent, _ROOM), break_long_words=False, break_on_hyphens=False)
        line = f"\n{' ' * indent}".join(parts)
    print(f"{lead}{line}")


def _columns() -> int:
    return shutil.get_terminal_size().columns


def print_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """Names and values on stdout, one pair a line, values aligned; a hyphen for None."""
    lines = [(safe(name), "-" if value is None else value) for name, value in pairs]
    width = max((len(name) for name, _ in lines), default=0)
    for name, value in lines:
        print_folded(value, f"{name.ljust(width)}  ")


def flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested objects as dotted names; lists of objects by their ``name`` or place."""
    for name, part in value.items():
        if isinstance(part, list) and part and all(isinstance(item, Mapping) for item in part):
            part = {str(item.get("name", place)): item for place, item in enumerate(part)}
        if isinstance(part, Mapping):
            yield from flat(part, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", part


def who_of(entry: Mapping[str, Any]) -> str:
    """Crew and agent, and the actor if that is not the agent itself: ``platform/ada by user boss``; made safe later."""
    from ...schemas.entries.rules import is_agent_itself

    whose = "/".join(str(entry[name]) for name in ("crew_id", "agent_id") if entry.get(name)) or "-"
    kind, name = entry.get("actor_type"), entry.get("actor_id")
    if not kind or is_agent_itself(entry.get("agent_id"), kind, name):
        return whose
    return f"{whose} by {kind} {name}" if name and name != kind else f"{whose} by {kind}"


def entry_line(entry: Mapping[str, Any]) -> str:
    """An entry as one line: time, severity, type, crew/agent and actor, summary, live priority, id."""
    stamp = str(entry.get("ts", ""))[:19].replace("T", " ")
    priority = entry.get("live_priority") or entry.get("priority", "normal")
    mark = "" if priority == "normal" else f" [{priority}]"
    return safe(
        f"{stamp}  {entry.get('severity', ''):<6}  {entry.get('entry_type', ''):<24}  {who_of(entry):<20}  "
        f"{entry.get('summary', '')}{mark}  ({entry.get('id', '')})"
    )


def print_entry(entry: Mapping[str, Any]) -> None:
    """One entry on stdout; on a terminal within its width, and coloured by severity unless ``NO_COLOR`` is set."""
    line = entry_line(entry)
    if sys.stdout.isatty():
        line = textwrap.fill(
            line, _columns(), subsequent_indent=_MARGIN, break_long_words=False, break_on_hyphens=False
        )
        if not os.environ.get("NO_COLOR"):
            line = click.style(line, fg=SEVERITY_COLOURS.get(str(entry.get("severity"))))
    print(line)


@contextmanager
def progress_bar(title: str, total: int | None = None, *, unit: str = "entries") -> Iterator[Progress]:
    """A progress bar on stderr; yields a function of the progress, the total and a note.

    No bar if stderr is not a terminal.
    """
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    texts = [TextColumn("{task." + name + "}", markup=False) for name in ("description", "fields[note]")]
    columns = (texts[0], BarColumn(), texts[1], TimeElapsedColumn())
    console = Console(stderr=True, highlight=False, emoji=False)
    with RichProgress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as bars:
        task = bars.add_task(title, total=total, note="")

        def update(done: int, total: int | None = None, note: str = "") -> None:
            bars.update(task, completed=done, total=total, note=note or f"{done:,} {unit}")

        yield update


def say_warnings(answer: Mapping[str, Any]) -> None:
    """The warnings of an append, on stderr."""
    for warning in answer.get("warnings", ()):
        say(f"warning: {safe(warning)}")


def shares(hits: Sequence[Mapping[str, Any]]) -> list[str]:
    """The scores of hits for people, 0 to 1: shares of the best one, because a score has no unit; --json has it as it is."""
    best = max((float(hit["score"]) for hit in hits), default=0.0)
    return [f"{max(float(hit['score']), 0.0) / best:.2f}" if best > 0 else "0.00" for hit in hits]


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """``1 hit``, ``2 hits``; ``plural`` where it is not formed with an s."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def report_error(error: BaseException, *, as_json: bool) -> None:
    """Print on stderr what is wrong and what to do: ``error: …`` and ``hint: …``, or one JSON document.

    The JSON is ``{"error": {"type", "title", "message", "hint", "field", "problems"}}``.
    """
    message = getattr(error, "message", None) or str(error) or type(error).__name__
    hint = getattr(error, "hint", "") or ""
    problems = [problem.as_dict() for problem in getattr(error, "problems", ())]
    if as_json:
        body = {
            "type": type(error).__name__,
            "title": getattr(error, "title", "Crew Journal failed"),
            "message": message,
            "hint": hint,
            "field": getattr(error, "field", None),
            "problems": problems,
            **getattr(error, "facts", {}),
        }
        say(json.dumps({"error": body}))
        return
    lines = [(f"{problem['field']}: {problem['problem']}", problem["fix"]) for problem in problems] or [(message, hint)]
    for wrong, fix in lines:
        say(f"error: {safe(wrong)}")
        if fix:
            for field, option in _OPTION_OF.items():
                fix = fix.replace(f"name {field}", f"add {option} NAME")
            say(f"hint: {safe(fix)}")

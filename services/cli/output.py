"""What a command says: data on stdout, everything else on stderr, and nothing that acts on the terminal.

Invariant: text that came from an agent reaches a terminal only through :func:`safe`, and never as rich markup; a
memory must not be able to clear the screen, set the title or hide what comes after it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

if TYPE_CHECKING:
    from rich.console import Console

JSON_FLAG: Final = "--json"
PIPE_WIDTH: Final = 160
"""Columns of a table that goes into a file or a pipe, where there is no width to ask for."""
_WIDEST: Final = 10_000
"""Columns of the widest table: more than all its cells have."""
JOINERS: Final = "\u200c\u200d"
"""Not printable by Unicode, but Persian and the emoji of families are unreadable without them."""
SEVERITY_STYLES: Final = {"info": "", "notice": "cyan", "warn": "yellow", "error": "red"}

_SECOND: Final = 1
_AGES: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (_SECOND, "s"))


def safe(text: object) -> str:
    r"""``text`` with every character that could act on a terminal shown as its escape.

    Control characters (ANSI escapes begin with one), bidirectional overrides, line separators and other invisible
    characters become ``\x1b``, ``\u202e`` and so on; what can be printed is left as it is.
    """
    plain = str(text)
    if plain.isprintable():
        return plain
    return "".join(c if c.isprintable() or c in JOINERS else _escaped(c) for c in plain)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def age(seconds: float) -> str:
    """A duration in its largest whole unit: ``3 d``, ``5 h``, ``12 min``, ``8 s``."""
    for size, unit in _AGES:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return "now"


def size_text(count: float) -> str:
    """A number of bytes, like ``3.4 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")


def stdout_console() -> Console:
    """A console for data; wide enough for a table when nobody is looking."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False, emoji=False, markup=False)


def stderr_console() -> Console:
    """A console for messages and progress."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, emoji=False, markup=False, soft_wrap=True)


def say(message: str) -> None:
    """One line for the person at the terminal, on stderr."""
    print(message, file=sys.stderr, flush=True)


def emit(document: Any) -> None:
    """One JSON document on stdout; indented, and in ASCII, on a terminal."""
    on_terminal = sys.stdout.isatty()
    print(
        json.dumps(document, indent=2 if on_terminal else None, ensure_ascii=on_terminal, default=_jsonable),
        flush=True,
    )


def emit_line(document: Any) -> None:
    """One line of NDJSON on stdout, at once."""
    print(json.dumps(document, ensure_ascii=sys.stdout.isatty(), default=_jsonable), flush=True)


def plain(value: Any) -> Any:
    """An answer of the client as plain JSON values, whatever model it came in."""
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value


def _jsonable(value: object) -> Any:
    if (simple := plain(value)) is not value:
        return simple
    return value.isoformat() if isinstance(value, datetime) else str(value)


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()
) -> None:
    """A table on stdout.

    Args:
        title: Above it; empty for none.
        columns: Headings. The last column takes what width there is and wraps; nothing of the others is cut, whatever
            the width.
        rows: Cells, made safe here.
        right: Headings of the columns of figures.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(safe(title)) if title else None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    cells = [[Text(safe(cell)) for cell in row] for row in rows]
    for at, name in enumerate(columns):
        last = at == len(columns) - 1
        needed = None if last else max(len(name), *(row[at].cell_len for row in cells), 0)
        justify: Literal["right", "left"] = "right" if name in right else "left"
        table.add_column(name, justify=justify, no_wrap=not last, overflow="fold", min_width=needed)
    for row in cells:
        table.add_row(*row)
    console = stdout_console()
    console.width = max(
        console.width, table.__rich_measure__(console, console.options.update(max_width=_WIDEST)).minimum
    )
    console.print(table)


def print_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """Names and values on stdout, one pair a line, values aligned."""
    lines = [(safe(name), safe(value)) for name, value in pairs]
    width = max((len(name) for name, _ in lines), default=0)
    for name, value in lines:
        print(f"{name.ljust(width)}  {value}")


def who_of(entry: Mapping[str, Any]) -> str:
    """Crew and agent, and the actor if that is not the agent itself: ``platform/ada by user boss``; made safe later."""
    from ...schemas.rules.actors import is_agent_itself

    whose = "/".join(str(entry[name]) for name in ("crew_id", "agent_id") if entry.get(name)) or "-"
    kind, name = entry.get("actor_type"), entry.get("actor_id")
    if not kind or is_agent_itself(entry.get("agent_id"), kind, name):
        return whose
    return f"{whose} by {kind} {name}" if name else f"{whose} by {kind}"


def entry_line(entry: Mapping[str, Any]) -> str:
    """An entry as one line: time, severity, type, crew/agent and actor, summary, id."""
    who = who_of(entry)
    stamp = str(entry.get("ts", ""))[:19].replace("T", " ")
    mark = "" if entry.get("priority", "normal") == "normal" else f" [{entry['priority']}]"
    return safe(
        f"{stamp}  {entry.get('severity', ''):<6}  {entry.get('entry_type', ''):<24}  {who:<20}  "
        f"{entry.get('summary', '')}{mark}  ({entry.get('id', '')})"
    )


def print_entry(entry: Mapping[str, Any]) -> None:
    """One entry on stdout, coloured by severity on a terminal."""
    from rich.text import Text

    style = SEVERITY_STYLES.get(str(entry.get("severity")), "")
    stdout_console().print(Text(entry_line(entry), style=style), soft_wrap=True)


def age_of(hit: Mapping[str, Any]) -> str:
    """How old a hit is: its ``age_seconds``, or the time since its ``ts``."""
    known = hit.get("age_seconds")
    if known is None and hit.get("ts"):
        known = (datetime.now(UTC) - datetime.fromisoformat(str(hit["ts"]))).total_seconds()
    return age(float(known or 0))


class Progress(Protocol):
    """A bar, or nothing where nobody could see one."""

    def update(self, done: int, total: int | None = None, note: str = "") -> None:
        """Show that ``done`` of ``total`` are done; ``note`` stands beside the bar."""
        ...


class _Silent:
    def update(self, done: int, total: int | None = None, note: str = "") -> None:
        """Nobody looks."""


@contextmanager
def progress_bar(title: str, total: int | None = None, *, unit: str = "entries") -> Iterator[Progress]:
    """A progress bar on stderr if that is a terminal; else nothing is shown."""
    if not sys.stderr.isatty():
        yield _Silent()
        return
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        TimeElapsedColumn(),
    )
    with RichProgress(*columns, console=stderr_console(), transient=True) as rich_progress:
        task = rich_progress.add_task(title, total=total, note="")

        class _Bar:
            def update(self, done: int, total: int | None = None, note: str = "") -> None:
                shown = note or f"{done:,} {unit}"
                if total is not None:
                    rich_progress.update(task, completed=done, total=total, note=shown)
                else:
                    rich_progress.update(task, completed=done, note=shown)

        yield _Bar()


def report_error(error: BaseException, *, as_json: bool) -> None:
    """Say on stderr what is wrong and what to do: ``error: …`` and ``hint: …``, or one JSON document.

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
        }
        print(json.dumps({"error": body}), file=sys.stderr, flush=True)
        return
    if problems:
        for problem in problems:
            say(f"error: {safe(problem['field'])}: {safe(problem['problem'])}")
            if problem["fix"]:
                say(f"hint: {safe(problem['fix'])}")
        return
    say(f"error: {safe(message)}")
    if hint:
        say(f"hint: {safe(hint)}")

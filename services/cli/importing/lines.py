"""A JSONL file as batches of submissions, each line with its number, and every bad line with its reasons.

Invariant: the same file gives the same ids. An entry without an id gets one that follows from its workspace, line
number and content, so an import may be repeated from any point and counts each line once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

from ....schemas.api import EntryRecord
from ....schemas.catalogue import info_of
from ....schemas.core.entry import MAX_ENTRY_BYTES, JournalEntry, build_entry
from ....schemas.core.errors import FieldProblem, InvalidEntry
from ....schemas.core.ids import is_service_id
from ....schemas.core.limits import DEFAULT_WORKSPACE, REQUEST_BYTES
from ....schemas.core.payload import SERVICE_ALONE
from ..foreign_files import ShapeFault, parse
from .key import import_id

BATCH_LINES: Final = 500
"""Maximum lines of a request: one atomic batch of the broker."""
MAX_LINE_BYTES: Final = 4 * MAX_ENTRY_BYTES
"""Maximum bytes of a line: an entry of the maximum size with every character escaped."""
_STAND_IN: Final = {"id": "i_0", "workspace_id": DEFAULT_WORKSPACE, "ts": "2000-01-01T00:00:00Z"}
"""Values that the service fills in, used to check a submission before it is sent."""

_LISTED: Final = {"seq", "live_priority", "standing"}
"""Fields by which an entry of a listing is known."""
_ONLY_LISTED: Final = EntryRecord.model_fields.keys() - JournalEntry.model_fields.keys()

_entry_of_batch: Final = re.compile(r"^entries\[(\d+)\]\.?")
_in_batch: Final = re.compile(r"entries\[(\d+)\](\.?)")


@dataclass(frozen=True, slots=True)
class Line:
    """A line that can be sent: its number from 1, its bytes without the line break, and the submission.

    ``at`` is the position in the source of another format; empty for a file of entries. ``standing`` is why an entry of a
    listing did not count any more there.
    """

    number: int
    raw: bytes
    record: dict[str, Any]
    at: str = ""
    standing: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        """Where it is, for messages."""
        return self.at or f"line {self.number}"


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that cannot be sent, and why; ``at`` as in ``Line``."""

    number: int
    raw: bytes
    problems: tuple[FieldProblem, ...]
    at: str = ""

    @property
    def name(self) -> str:
        """Where it is, for messages."""
        return self.at or f"line {self.number}"


@dataclass(slots=True)
class LineBatch:
    """Consecutive lines of the file, in order: valid lines and bad lines.

    Attributes:
        end_offset: Bytes of the file up to the end of the last line.
        end_line: Number of the last line.
        of_service: Number of skipped lines with entries of a listing that an import cannot write.
    """

    good: list[Line] = field(default_factory=list)
    bad: list[BadLine] = field(default_factory=list)
    end_offset: int = 0
    end_line: int = 0
    of_service: int = 0


def read_batches(
    file: BinaryIO, *, offset: int = 0, line: int = 0, workspace: str | None = None
) -> Iterator[LineBatch]:
    """The rest of a file in batches of at most ``BATCH_LINES`` lines and about ``REQUEST_BYTES`` bytes.

    The file is at ``offset`` bytes, after the line of number ``line``. If a workspace is given, every entry is put into it.
    """
    batch, size = LineBatch(end_offset=offset, end_line=line), 0
    while chunk := file.readline(MAX_LINE_BYTES):
        line += 1
        offset += len(chunk)
        too_long = len(chunk) == MAX_LINE_BYTES and not chunk.endswith(b"\n")
        while too_long and (rest := file.readline(MAX_LINE_BYTES)):
            offset += len(rest)
            if rest.endswith(b"\n"):
                break
        raw = chunk.rstrip(b"\r\n")
        if too_long:
            limit = f"the line is longer than {MAX_LINE_BYTES:,} bytes"
            batch.bad.append(BadLine(line, raw[:0], (FieldProblem("entry", limit, "split it"),)))
        elif raw.strip():
            read = read_line(line, raw, workspace)
            if isinstance(read, Line):
                batch.good.append(read)
            elif read is None:
                batch.of_service += 1
            else:
                batch.bad.append(read)
        size += len(raw)
        batch.end_offset, batch.end_line = offset, line
        if len(batch.good) + len(batch.bad) + batch.of_service >= BATCH_LINES or size >= REQUEST_BYTES:
            yield batch
            batch, size = LineBatch(end_offset=offset, end_line=line), 0
    if batch.good or batch.bad or batch.of_service:
        yield batch


def batches_of(lines: Iterable[tuple[int, bytes, Line | BadLine | None]]) -> Iterator[LineBatch]:
    """Lines in batches like those of ``read_batches``; a number (ascending) stands for the place of a line, too.

    Args:
        lines: Number, bytes, and what came of each; None is left out.
    """
    batch, size, number = LineBatch(), 0, 0
    for number, raw, read in lines:
        if isinstance(read, Line):
            batch.good.append(read)
        elif read is not None:
            batch.bad.append(read)
        size += len(raw)
        if len(batch.good) + len(batch.bad) >= BATCH_LINES or size >= REQUEST_BYTES:
            batch.end_offset = batch.end_line = number
            yield batch
            batch, size = LineBatch(end_offset=number, end_line=number), 0
    if number > batch.end_line:
        batch.end_offset = batch.end_line = number
        yield batch


def read_line(number: int, raw: bytes, workspace: str | None, at: str = "") -> Line | BadLine | None:
    """Parse one line as a submission or a bad line; the caller skips blank lines.

    A line may be an entry as `list --all --json` prints it. None if that entry cannot be written by an import: only the
    service writes its type, or it was archived, so that the listing has only its beginning.
    """
    standing = None
    try:
        record = json_object_of(number, raw)
        if record.keys() >= _LISTED:
            if record.get("archived") or _of_service(record):
                return None
            standing = record["standing"] if isinstance(record["standing"], dict) else None
            record = {name: value for name, value in record.items() if name not in _ONLY_LISTED and value is not None}
        if workspace is not None:
            record["workspace_id"] = workspace
        if not record.get("id"):
            record["id"] = line_id(str(record.get("workspace_id") or ""), number, raw)
        build_entry({**_STAND_IN, **{name: value for name, value in record.items() if value is not None}})
    except InvalidEntry as error:
        return BadLine(number, raw, error.problems, at)
    return Line(number, raw, record, at, standing)


def _of_service(record: dict[str, Any]) -> bool:
    return (
        str(record.get("workspace_id", "")).startswith("_")
        or is_service_id(record.get("id"))  # the record of a consolidation, whose type others may publish, too
        or info_of(str(record.get("entry_type"))).publisher in SERVICE_ALONE
    )


def json_object_of(number: int, raw: bytes) -> dict[str, Any]:
    """A line as a JSON object; the first line may begin with a byte order mark.

    Raises:
        InvalidEntry: If it is not a JSON object.
    """
    fix = "write one JSON object per line"
    try:
        record = parse(raw.decode("utf-8-sig" if number == 1 else "utf-8"))
    except UnicodeDecodeError:
        why, fix = "is not UTF-8", "write the file as UTF-8"
    except ShapeFault as fault:
        why = f"is not JSON: {fault}"
        if fault.beyond:
            why, fix = f"is refused: {fault}", "flatten it, and send large numbers as text"
    else:
        if isinstance(record, dict):
            return record
        why = "is not a JSON object"
    raise InvalidEntry((FieldProblem("entry", why, fix),))


def line_id(workspace: str, number: int, raw: bytes) -> str:
    """The id of a line without an id, from workspace, line number and content."""
    return import_id(f"{workspace}\x00{number}\x00{raw.decode('utf-8', errors='replace')}")


def bad_lines_of(error: InvalidEntry, lines: list[Line]) -> list[BadLine]:
    """The lines that the service refused, from field names such as ``entries[3].summary``; empty if it named no line."""
    problems_by_line: dict[int, list[FieldProblem]] = {}
    for problem in error.problems:
        match = _entry_of_batch.match(problem.field)
        if match is None or int(match[1]) >= len(lines):
            return []
        name = problem.field[match.end() :] or "entry"
        text = with_line_numbers(problem.problem, lines)
        problems_by_line.setdefault(int(match[1]), []).append(FieldProblem(name, text, problem.fix))
    return [
        BadLine(lines[i].number, lines[i].raw, tuple(problems), lines[i].at)
        for i, problems in sorted(problems_by_line.items())
    ]


def with_line_numbers(text: str, lines: list[Line]) -> str:
    """``text`` of the service with ``entries[3]`` replaced by the number of that line."""

    def name(match: re.Match[str]) -> str:
        index = int(match[1])
        if index >= len(lines):
            return match[0]
        return f"{lines[index].name}{': ' if match[2] else ''}"

    return _in_batch.sub(name, text)


def refusal(bad: list[BadLine]) -> InvalidEntry:
    """The error that names every problem of every bad line."""
    return InvalidEntry(
        tuple(
            FieldProblem(f"{line.name}: {problem.field}", problem.problem, problem.fix)
            for line in bad
            for problem in line.problems
        )
    )

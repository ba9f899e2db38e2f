"""``export``: the entries of each workspace as a file, JSONL or Parquet, in the order of the journal.

Invariant: a JSONL file is what ``import`` takes back; a file has its final name only when it is whole.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Final, Literal

import click

from .commands import Argument, Option
from .connection import client
from .options import Json, Where, Workspace
from .output import counted, plain, print_table, progress_bar, show

if TYPE_CHECKING:
    from ..client import CrewJournal

PAGE: Final = 500
"""Entries of one request."""
_GROUP: Final = 20_000
"""Entries of a row group of Parquet."""


def export(
    folder: Annotated[Path, Argument(metavar="DIR", file_okay=False, help="Directory of the files; made if needed.")],
    format_: Annotated[Literal["jsonl", "parquet"], Option("--format", help="jsonl or parquet.")] = "jsonl",
    archive: Annotated[bool, Option("--archive", help="Include archived entries.")] = False,
    workspace: Workspace = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Write the entries of each workspace, or of one, to DIR/WORKSPACE.jsonl or .parquet, in the order of the journal."""
    with client(where) as journal:
        names = [workspace] if workspace else [workspace.workspace_id for workspace in journal.workspaces().workspaces]
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = [_export(journal, name, folder / f"{name}.{format_}", archive) for name in names]
    show({"files": made}, json_output, _print)


def _export(journal: CrewJournal, workspace: str, path: Path, archive: bool) -> dict[str, Any]:
    if path.exists():
        raise click.BadParameter(f"{path} exists already; name a new directory", param_hint="DIR")
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with tempfile.TemporaryFile() as kept:
            entries = _in_order(kept, _fetch(journal, workspace, kept, archive))
            count = _write_parquet(draft, entries) if path.suffix == ".parquet" else _write_jsonl(draft, entries)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return {"workspace": workspace, "file": str(path), "entries": count, "bytes": path.stat().st_size}


def _fetch(journal: CrewJournal, workspace: str, kept: IO[bytes], archive: bool) -> list[tuple[int, int, int]]:
    """Keep every entry as JSON; returns the sequence of each, where it begins, and its bytes."""
    places, cursor = [], None
    fields: dict[str, Any] = {"include_archive": True} if archive else {}
    with progress_bar(f"export {workspace}") as bar:
        while True:
            page = plain(journal.list(workspace_id=workspace, limit=PAGE, cursor=cursor, **fields))
            for entry in page["entries"]:
                raw = json.dumps(entry, ensure_ascii=False).encode()
                places.append((entry["seq"], kept.tell(), len(raw)))
                kept.write(raw)
            bar(len(places))
            cursor = page.get("next_cursor")
            if cursor is None:
                return places


def _in_order(kept: IO[bytes], places: Sequence[tuple[int, int, int]]) -> Iterator[dict[str, Any]]:
    for _, begin, size in sorted(places):
        kept.seek(begin)
        yield json.loads(kept.read(size))


def _write_jsonl(path: Path, entries: Iterator[dict[str, Any]]) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for entry in entries:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")
            count += 1
    return count


def _write_parquet(path: Path, entries: Iterator[dict[str, Any]]) -> int:
    """Payload and refs are JSON text, times timestamps in UTC."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from ...schemas.api import EntryRecord

    kinds = {"seq": pa.int64(), "schema_version": pa.int32(), "archived": pa.bool_(), "original_bytes": pa.int64()}
    kinds |= {
        "ts": pa.timestamp("ms", "UTC"),
        "valid_at": pa.timestamp("ms", "UTC"),
        "supersedes": pa.list_(pa.string()),
    }
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in EntryRecord.model_fields])
    count = 0
    with pq.ParquetWriter(path, schema) as writer:
        rows: list[dict[str, Any]] = []
        for entry in entries:
            rows.append(_row(entry))
            count += 1
            if len(rows) == _GROUP:
                writer.write_table(pa.Table.from_pylist(rows, schema))
                rows.clear()
        writer.write_table(pa.Table.from_pylist(rows, schema))
    return count


def _row(entry: dict[str, Any]) -> dict[str, Any]:
    from datetime import datetime

    texts = {name: json.dumps(value, ensure_ascii=False) for name, value in entry.items() if isinstance(value, dict)}
    times = {name: datetime.fromisoformat(entry[name]) for name in ("ts", "valid_at") if entry.get(name)}
    return {**entry, **texts, **times}


def _print(answer: dict[str, Any]) -> None:
    columns = ("workspace", "entries", "bytes", "file")
    print_table(columns, [[file[name] for name in columns] for file in answer["files"]], right=("entries", "bytes"))
    print(counted(sum(file["entries"] for file in answer["files"]), "entry", "entries"))

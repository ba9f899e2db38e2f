"""``export --follow``: the entries of each workspace in Parquet files by hour, kept equal to what the journal answers.

``workspace=W/date=D/hour=H/entries.parquet`` has the entries whose ``ts`` lies in that hour (UTC), in the order of the
journal; DuckDB, Polars, Spark and ClickHouse read the partitions of such a tree. The tree is a directory or a bucket.

Invariant: a file is replaced whole, so a reader sees the former or the new one. What was written is not written twice,
whenever a run was interrupted: a file keeps one row for each sequence. After an erasure has completed, every file of
its workspace is compared with the journal, and those that hold an erased entry are replaced or removed.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .output import plain

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    from ..client import CrewJournal

STATE: Final = "_export.json"
"""How far each workspace is written, and its last completed erasure."""
GROUP: Final = 20_000
"""Entries that are written at once, and of a row group."""
Hour = tuple[str, str]
"""Date and hour, as they stand in paths."""


@dataclass(slots=True)
class Round:
    """What one pass over the journal wrote."""

    entries: int = 0
    files: int = 0
    erased: int = 0


class HourlyExport:
    """A tree of Parquet files that follows a journal.

    Args:
        journal: Client; its token decides which entries are read.
        where: A directory, or the URI of a bucket that pyarrow opens (``s3://bucket/prefix``).
    """

    def __init__(self, journal: CrewJournal, where: str) -> None:
        from pyarrow.fs import FileSystem

        self._journal = journal
        self._files: FileSystem
        if "://" in where:
            self._files, self._root = FileSystem.from_uri(where)
        else:
            self._files, self._root = FileSystem.from_uri(Path(where).absolute().as_uri())
        self._files.create_dir(self._root, recursive=True)
        self._state: dict[str, dict[str, Any]] = self._read_state()

    def write(self, workspaces: Iterable[str]) -> Round:
        """Write what is new in these workspaces, and take out what was erased."""
        done = Round()
        for workspace in workspaces:
            state = self._state.get(workspace, {"seq": 0, "erasure": None})
            erasure = self._last_erasure(workspace)
            everything = erasure != state["erasure"]
            known = set[int]()
            for entries in self._after(workspace, 0 if everything else state["seq"]):
                known.update(entry["seq"] for entry in entries)
                by_hour: dict[Hour, list[dict[str, Any]]] = defaultdict(list)
                for entry in entries:
                    by_hour[_hour(entry["ts"])].append(entry)
                for hour, added in sorted(by_hour.items()):
                    self._write_hour(workspace, hour, added, None, done)
            if everything:
                for hour in self._hours(workspace):
                    self._write_hour(workspace, hour, [], known, done)
            written = {"seq": max(known, default=state["seq"]), "erasure": erasure}
            if self._state.get(workspace) != written:
                self._state[workspace] = written
                self._replace(f"{self._root}/{STATE}", json.dumps(self._state, indent=1).encode())
        return done

    def _last_erasure(self, workspace: str) -> str | None:
        erasures = self._journal.erasures(workspace_id=workspace).erasures
        ended = [erasure for erasure in erasures if erasure.completed_at is not None]
        return max(ended, key=lambda erasure: str(erasure.completed_at)).erasure_id if ended else None

    def _after(self, workspace: str, seq: int) -> Iterator[list[dict[str, Any]]]:
        """The entries after this sequence, in order, some thousands at a time."""
        entries = self._journal.entries(workspace_id=workspace, include_archive=True, after_seq=seq)
        while group := [plain(entry) for entry in islice(entries, GROUP)]:
            yield group

    def _write_hour(
        self, workspace: str, hour: Hour, entries: list[dict[str, Any]], known: set[int] | None, done: Round
    ) -> None:
        """Write the file of one hour with these entries added; ``known`` are the sequences that may stay."""
        import pyarrow as pa
        import pyarrow.compute as pc

        path = f"{self._folder(workspace)}/date={hour[0]}/hour={hour[1]}/entries.parquet"
        former = self._table(path)
        before = set[int]() if former is None else set(former["seq"].to_pylist())
        added = [entry for entry in entries if entry["seq"] not in before]
        gone = before - known if known is not None else set[int]()
        if not added and not gone:
            return
        done.entries += len(added)
        done.erased += len(gone)
        table = table_of(added)
        if former is not None:
            kept = former.filter(pc.invert(pc.is_in(former["seq"], pa.array(sorted(gone), pa.int64()))))
            table = pa.concat_tables([kept.cast(table.schema), table]).sort_by("seq")
        if not table.num_rows:
            self._files.delete_file(path)
            return
        self._replace(path, _parquet(table))
        done.files += 1

    def _folder(self, workspace: str) -> str:
        return f"{self._root}/workspace={workspace}"

    def _hours(self, workspace: str) -> list[Hour]:
        from pyarrow.fs import FileSelector

        found = self._files.get_file_info(FileSelector(self._folder(workspace), allow_not_found=True, recursive=True))
        parts = [file.path.split("/") for file in found if file.path.endswith("/entries.parquet")]
        return [(date.removeprefix("date="), hour.removeprefix("hour=")) for *_, date, hour, _ in parts]

    def _table(self, path: str) -> pa.Table | None:
        import pyarrow.parquet as pq

        if not self._files.get_file_info(path).is_file:
            return None
        with self._files.open_input_file(path) as file:
            return pq.read_table(file)

    def _replace(self, path: str, content: bytes) -> None:
        folder, _, name = path.rpartition("/")
        self._files.create_dir(folder, recursive=True)
        draft = f"{folder}/.{name}.draft"
        with self._files.open_output_stream(draft) as file:
            file.write(content)
        self._files.move(draft, path)

    def _read_state(self) -> dict[str, dict[str, Any]]:
        path = f"{self._root}/{STATE}"
        if not self._files.get_file_info(path).is_file:
            return {}
        with self._files.open_input_file(path) as file:
            return dict(json.loads(file.read()))


def _hour(ts: str) -> Hour:
    at = datetime.fromisoformat(ts).astimezone(UTC)
    return at.strftime("%Y-%m-%d"), at.strftime("%H")


def _parquet(table: pa.Table) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = pa.BufferOutputStream()
    pq.write_table(table, content)
    return bytes(content.getvalue())


def entry_schema() -> pa.Schema:
    """Columns of an entry in Parquet: payload and refs are JSON text, times are timestamps in UTC."""
    import pyarrow as pa

    from ...schemas.api import EntryRecord

    kinds = {"seq": pa.int64(), "schema_version": pa.int32(), "archived": pa.bool_(), "original_bytes": pa.int64()}
    kinds |= {
        "ts": pa.timestamp("ms", "UTC"),
        "valid_at": pa.timestamp("ms", "UTC"),
        "supersedes": pa.list_(pa.string()),
    }
    return pa.schema([(name, kinds.get(name, pa.string())) for name in EntryRecord.model_fields])


def table_of(entries: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Entries, as the service answers them, as a table."""
    import pyarrow as pa

    return pa.Table.from_pylist([_row(entry) for entry in entries], entry_schema())


def _row(entry: Mapping[str, Any]) -> dict[str, Any]:
    texts = {name: json.dumps(value, ensure_ascii=False) for name, value in entry.items() if isinstance(value, dict)}
    times = {name: datetime.fromisoformat(entry[name]) for name in ("ts", "valid_at") if entry.get(name)}
    return {**entry, **texts, **times}

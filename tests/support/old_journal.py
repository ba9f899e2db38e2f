"""A journal that commit 79601fb wrote, and what its views made of it: stored before the format was frozen.

``messages.jsonl`` is the stream of a real service after imports, tokens, priorities, relations, sweeps, recalls, vectors
and two broken messages; ``folded.json`` holds, for each table, the columns of that day and a hash of their rows that does
not depend on DuckDB's own hash. Whoever changes a fold on purpose records it again, and says why in the commit:

    PYTHONPATH=tests python -m support.old_journal
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import duckdb
from support.views import node

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.consumers.host.rebuild import DigestedView
from crew_journal.consumers.host.transaction import digest_queries

FOLDER = Path(__file__).parents[1] / "golden" / "journal"
FOLDED = FOLDER / "folded.json"


def messages() -> list[RawMessage]:
    """The stream, with its gaps."""
    found = []
    for line in (FOLDER / "messages.jsonl").read_text("utf-8").splitlines():
        record = json.loads(line)
        body = bytes.fromhex(record["body_hex"]) if "body_hex" in record else record["body"].encode()
        found.append(
            RawMessage(record["seq"], record["subject"], record["headers"] or None, body, record["published_ms"])
        )
    return found


def _table(con: duckdb.DuckDBPyConnection, query: str, columns: list[str] | None) -> dict[str, Any]:
    names = columns or [row[0] for row in con.execute(f"DESCRIBE {query}").fetchall()]
    rows = con.execute(f"SELECT {', '.join(names)} FROM ({query})").fetchall()
    lines = sorted(repr(row) for row in rows)
    return {"columns": names, "rows": len(rows), "hash": hashlib.sha256("\n".join(lines).encode()).hexdigest()}


async def folded(columns: dict[str, dict[str, Any]] | None = None) -> dict[str, Any]:
    """Tables and parkings after folding the stream.

    Args:
        columns: Table → the columns to look at, as ``folded.json`` names them; all if absent.
    """
    with tempfile.TemporaryDirectory(prefix="crew-old-") as folder:
        async with node(Path(folder) / "views.duckdb", discover_projections()) as live:
            await live.host.fold(messages())
            assert not live.host.laggards, live.host.status()
            tables = {}
            with live.store.snapshot() as con:
                views: list[DigestedView] = list(live.host.projections)
                for declared, query in (item for view in views for item in digest_queries(view.tables).items()):
                    table = declared.name
                    if columns is None or table in columns:
                        tables[table] = _table(con, query, columns and columns[table]["columns"])  # type: ignore[arg-type]  # a list in that file
            return {"parked": sorted([name, seq] for name, _, seq in live.dead.names()), "tables": tables}


if __name__ == "__main__":
    FOLDED.write_text(json.dumps(asyncio.run(folded()), indent=1) + "\n", encoding="utf-8")

"""How many events a projection may have parked for faults that it did not foresee, before it is the projection's fault.

Why: every parking is an entry in the journal and a letter in DEADLETTER, kept for ever. A ``KeyError`` in a new view would
write one for each of a million entries. An event that a fold rejects with ``FoldError`` is not counted.

Invariant: the count follows from the events in stream order alone, however they were batched, and is committed with the
checkpoint; so a restart, a crash or another attempt to catch up allows no further parkings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import duckdb

from ...schemas.settings import PARKING_RECOVERY_EVENTS, PARKINGS_LIMIT
from ..projection import Projection

PARKINGS_TABLE: Final = "parkings"
PARKINGS_DDL: Final = f"""CREATE TABLE IF NOT EXISTS {PARKINGS_TABLE} (
    projection VARCHAR NOT NULL, version INTEGER NOT NULL, strikes BIGINT NOT NULL)"""
LIMIT: Final = PARKINGS_LIMIT * PARKING_RECOVERY_EVENTS
"""Strikes at which a projection parks no more."""


class Leniency:
    """Strikes of each projection: an unforeseen parking adds ``PARKING_RECOVERY_EVENTS``, a folded event takes one away."""

    def __init__(self) -> None:
        self._strikes: dict[str, int] = {}

    def load(self, con: duckdb.DuckDBPyConnection, projections: Iterable[Projection]) -> None:
        """Take the strikes of these versions from the file."""
        known = con.execute(f"SELECT projection, version, strikes FROM {PARKINGS_TABLE}").fetchall()
        stored = {(name, version): strikes for name, version, strikes in known}
        all_strikes = {p.name: stored.get((p.name, p.version), 0) for p in projections}
        self._strikes = {name: strikes for name, strikes in all_strikes.items() if strikes}

    def is_used_up(self, projection: Projection) -> bool:
        """Whether the next event that it cannot fold is no longer parked."""
        return self._strikes.get(projection.name, 0) >= LIMIT

    def after_fold(self, projections: Iterable[Projection], events: int) -> dict[Projection, int]:
        """The strikes of those that have any, once they have folded so many events."""
        if not self._strikes:
            return {}
        return {p: max(0, self._strikes[p.name] - events) for p in projections if p.name in self._strikes}

    def after_parking(self, projection: Projection) -> dict[Projection, int]:
        """Its strikes once an event was parked."""
        return {projection: self._strikes.get(projection.name, 0) + PARKING_RECOVERY_EVENTS}

    def learn(self, strikes: Mapping[Projection, int]) -> None:
        """What was committed."""
        for projection, count in strikes.items():
            if count:
                self._strikes[projection.name] = count
            else:
                self._strikes.pop(projection.name, None)


def write_strikes(con: duckdb.DuckDBPyConnection, strikes: Mapping[Projection, int]) -> None:
    """Store strikes, inside the caller's transaction."""
    for projection, count in strikes.items():
        forget_strikes(con, projection)
        if count:
            con.execute(f"INSERT INTO {PARKINGS_TABLE} VALUES (?, ?, ?)", [projection.name, projection.version, count])


def forget_strikes(con: duckdb.DuckDBPyConnection, projection: Projection) -> None:
    """Forget the strikes of a projection, inside the caller's transaction."""
    con.execute(f"DELETE FROM {PARKINGS_TABLE} WHERE projection = ?", [projection.name])

"""The consumers of the journal: projections fold it into DuckDB, reactors publish further events."""

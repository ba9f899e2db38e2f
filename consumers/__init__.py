"""What happens next: projections fold the journal into DuckDB, reactors publish further events."""

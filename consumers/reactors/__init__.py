"""One reactor a file; discovery registers it."""

"""One projection a file: its tables and its fold; discovery registers it."""

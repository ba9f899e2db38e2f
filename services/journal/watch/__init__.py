"""Watches whether the broker runs, accepts writes, and still holds the acked messages."""

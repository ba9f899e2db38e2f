"""Watches whether the broker runs, stores, and still holds the acked messages."""

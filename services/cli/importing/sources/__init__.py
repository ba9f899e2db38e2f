"""Readers of what other programs keep, by kind of source: their records as submissions of entries."""

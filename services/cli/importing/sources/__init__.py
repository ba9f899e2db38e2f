"""Readers of what other programs keep, one file for each: their records as submissions of entries."""

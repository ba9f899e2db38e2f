"""Readers of JOURNAL: the live feed and the bulk replay, both in stream order."""

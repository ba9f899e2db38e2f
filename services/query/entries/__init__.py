"""Entries as they were journalled: list, count, get, the live tail and the graph around them, with filters and cursors."""

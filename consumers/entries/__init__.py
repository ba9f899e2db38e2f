"""Entries as views: lists, full text, turns of conversations; compaction."""

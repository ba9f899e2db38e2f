"""Entries of the journal as they are stored, listed, compacted and erased."""

"""A directory of memory documents that is synchronised with the journal."""

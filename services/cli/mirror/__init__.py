"""A directory of memory documents that is kept in step with the journal."""

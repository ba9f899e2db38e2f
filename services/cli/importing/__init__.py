"""``import``: imports a JSONL file into the journal, in batches that can be resent."""

"""``import``: a JSONL file into the journal, in batches that can be sent again."""

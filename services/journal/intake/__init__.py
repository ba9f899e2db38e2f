"""From a request to append to an accepted message in the journal: validation, authority, receipts."""

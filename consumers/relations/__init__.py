"""Relations between entries: how links, updates and contradictions are found and folded."""

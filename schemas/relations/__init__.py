"""Relations between entries: similar, contradicting, superseding."""

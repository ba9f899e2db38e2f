"""Shows and measures the health of a memory."""

"""How healthy memories are: measured and folded."""

"""Use-cases of the palace."""

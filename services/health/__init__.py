"""A memory's health as it was measured last."""

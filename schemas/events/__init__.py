"""Payload models, one file per family."""

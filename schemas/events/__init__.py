"""Payload models, one family a file."""

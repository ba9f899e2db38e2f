"""Embedding models: filled, activated, compared."""

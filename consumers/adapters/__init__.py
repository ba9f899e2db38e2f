"""Implementations of ``schemas.ports.Embedder``."""

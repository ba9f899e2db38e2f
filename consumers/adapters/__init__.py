"""Implementations of ``schemas.core.ports.Embedder``."""

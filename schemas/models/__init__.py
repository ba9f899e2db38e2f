"""Embedding models and chat models: which one, for which texts."""

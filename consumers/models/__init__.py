"""Vectors: how texts are embedded, and the views of vectors and models."""

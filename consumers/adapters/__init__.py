"""Models behind the Embedder port."""

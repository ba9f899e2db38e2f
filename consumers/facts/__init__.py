"""The knowledge graph as views, and reflection on it."""

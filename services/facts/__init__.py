"""The knowledge graph, and facts of layered memory."""

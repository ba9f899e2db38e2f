"""Facts about entities, with the time for which they hold: the knowledge graph."""

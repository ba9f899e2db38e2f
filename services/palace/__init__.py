"""The palace: drawers, the diary, the layers for prompts, and the knowledge graph."""

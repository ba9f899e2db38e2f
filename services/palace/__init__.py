"""The palace: filing, reading and searching drawers, the diary, and the layers for prompts."""

"""Layered memory: facts, procedures, episodes and working memory, and the assembly of a prompt context."""

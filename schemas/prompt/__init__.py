"""Texts for prompts: one assembler, of which every text of a memory in a prompt is a profile."""

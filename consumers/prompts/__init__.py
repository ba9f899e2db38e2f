"""Prompts of language models, one task a file: the prompt, the model of the answer, a version."""

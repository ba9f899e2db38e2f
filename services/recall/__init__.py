"""Recall: from a question to the hits that reach a prompt."""

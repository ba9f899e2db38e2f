"""Recall: the entries that answer a question, and how sure that is."""

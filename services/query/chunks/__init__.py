"""Search over chunks of memory documents: hot index, ranking, snippets, and the use-cases."""

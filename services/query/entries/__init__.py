"""Reading stored entries: list, count, get, live tail and graph, with filters and cursors."""

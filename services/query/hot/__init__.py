"""In-memory indexes that recall searches: loaded from the views, extended with every commit, evicted when unused."""

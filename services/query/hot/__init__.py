"""The hot index: what recall searches, in memory; loaded from the views, extended with every commit, let go when unused."""

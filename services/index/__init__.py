"""What recall searches: the texts of a workspace in memory, followed commit by commit."""

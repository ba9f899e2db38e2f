"""Which entries count, and how much, as views."""

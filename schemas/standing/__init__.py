"""Which entries count now, and how much: retractions, priorities, importance."""

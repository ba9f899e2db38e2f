"""Models of people: how statements about themselves are found and folded."""

"""What operators look after: dead letters, calls of tools."""

"""Orders candidates: fusion, rules, and the recipe for conversations."""

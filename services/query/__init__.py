"""Recall: recipes, search and rendering. ``entries`` lists stored entries; ``measures`` evaluates recall."""

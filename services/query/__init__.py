"""Recall: recipes, search and render over the rooms below; ``entries`` lists what was journalled, ``measures`` judges."""

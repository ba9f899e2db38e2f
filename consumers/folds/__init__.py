"""Pure functions that several folds use."""

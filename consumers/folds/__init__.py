"""Pure functions that several folds use: they read payloads, cut texts into words, and look words up."""

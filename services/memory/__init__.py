"""Memory use-cases: sweeps, health, nudges, references; no SQL of folds, no transport."""

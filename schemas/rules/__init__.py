"""Pure, versioned formulas: no clock, no randomness, no I/O."""

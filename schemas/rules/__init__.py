"""Pure formulas, versioned: no clock, no chance, no I/O."""

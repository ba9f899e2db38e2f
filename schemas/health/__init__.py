"""How healthy a memory is."""

"""Relations between entries, asserted and retracted by people and agents."""

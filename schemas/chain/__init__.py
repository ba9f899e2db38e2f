"""The transparency log over the journal: leaves, Merkle tree, signed checkpoints, and the check of a whole stream."""

"""Several nodes on one journal: which of them decides for a workspace."""

"""Several nodes on one journal: membership, ownership of decisions, and requests that another node answers."""

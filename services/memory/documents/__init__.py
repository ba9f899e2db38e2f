"""Memory documents: addressed, checked, written, read (contract §14)."""

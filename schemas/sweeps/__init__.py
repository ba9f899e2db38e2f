"""Work that is due again and again."""

"""Lineage: what each message was made of, who was given it, and notices about its end."""

"""Tokens: what each may do, and the users of the broker."""

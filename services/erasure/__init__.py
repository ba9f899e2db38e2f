"""Erases messages and everything that was derived from them."""

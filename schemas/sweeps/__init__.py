"""Periodic work."""

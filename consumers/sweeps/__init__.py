"""Sweeps as a view."""

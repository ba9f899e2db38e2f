"""Sweeps: when they are due, and on request."""

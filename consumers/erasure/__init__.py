"""Erasures as a view."""

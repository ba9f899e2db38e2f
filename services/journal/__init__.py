"""Append, streams and the managed broker."""

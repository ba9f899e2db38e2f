"""Entries: listed, followed live, published by agents."""

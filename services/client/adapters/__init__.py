"""Adapters that implement the memory interfaces of agent frameworks; only the adapter of a framework imports it."""

"""Publishes messages and waits for the broker's acks: one writer, many publishes in flight."""

"""From a message to the ack of the broker: one writer, many publishes in flight."""

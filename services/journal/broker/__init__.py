"""Access to nats-server: the managed process, the connection, and the streams."""

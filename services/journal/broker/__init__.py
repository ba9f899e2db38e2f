"""The way to nats-server: our own process of it, the connection, and the streams."""

"""The managed nats-server: found, configured, started, watched, and ended with the service."""

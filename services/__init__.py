"""Use cases and their interfaces: append, recall, HTTP, command line, client."""

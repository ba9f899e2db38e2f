"""Adapters of the client to other libraries. Each imports its library itself, so that the client does not need it."""

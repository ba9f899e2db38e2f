"""Memory documents: addressing, checks, writing, reading, searching, and the providers that store them."""

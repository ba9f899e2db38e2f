"""Memory providers: backends of memory documents behind the port ``schemas.provider``."""

"""Who asks: append, recall, HTTP, command line, client."""

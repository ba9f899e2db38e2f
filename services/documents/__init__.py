"""Memory documents: addressed, checked, written, read, searched, stored by a provider."""

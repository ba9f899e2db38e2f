"""Memory documents as views."""

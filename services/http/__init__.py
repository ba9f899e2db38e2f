"""HTTP routes over the use-cases."""

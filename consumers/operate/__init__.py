"""Dead letters as a view."""

"""Whether the broker lives, stores, and still holds what was acked."""

"""The arms of recall: each searches the hot index within a scope."""

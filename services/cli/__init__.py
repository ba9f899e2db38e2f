"""The `crew-journal` command."""

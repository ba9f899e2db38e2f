"""The palace: filing, searching and walking drawers."""

"""The palace: how drawers are filed, classified, compared and maintained."""

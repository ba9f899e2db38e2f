"""Pages for people at ``/``: server-rendered, escaped throughout, under a strict content policy."""

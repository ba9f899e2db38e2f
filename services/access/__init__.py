"""Who may do what: tokens, workspaces, agents, users of the broker."""

"""Who may do what: tokens, workspaces, agents, crews."""

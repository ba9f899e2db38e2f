"""Memory documents: texts of agents, crews and workspaces under tier and key."""

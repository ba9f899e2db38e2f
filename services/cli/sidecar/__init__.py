"""Memory on loopback for the processes of one agent, without a token."""

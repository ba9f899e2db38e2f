"""What goes into a prompt: budgets, conversation, tool schemas, and the assembly of all of it. Pure."""

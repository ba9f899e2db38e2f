"""The content of a prompt: budgets, conversation, tool schemas, and the assembly of all of them. Pure."""

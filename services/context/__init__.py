"""What reaches a prompt: memory blocks, assembled contexts, nudges."""

"""What reaches a prompt: the assembler, budgets, memory blocks, nudges."""

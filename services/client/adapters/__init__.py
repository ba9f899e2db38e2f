"""The memory behind the interfaces of agent frameworks: one module for each, which alone imports its framework."""

"""Tokens, agents and crews as views."""

"""Tokens: who may do what, and which users the broker lets in."""

"""Receipts of what recall showed."""

"""The host of the folds: it decodes and admits messages once, and commits a batch in one transaction.

Rebuild and verify use the same code as the live host.
"""

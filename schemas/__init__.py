"""What is true: the envelope, subjects, ids, errors, settings, rules and ports.

Imports only the standard library, pydantic and itself.
"""

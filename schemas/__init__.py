"""Models and pure rules that all other packages share.

Imports only the standard library, pydantic and itself.
"""

"""The composition root: the node itself, its embedding, its reactors.

Invariant: only this package and the command line import both consumers and services.
"""

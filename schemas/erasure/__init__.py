"""Erasure: lineage, tables and operations."""

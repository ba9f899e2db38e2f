"""Seals the journal, and checks it against its seals and anchors."""

"""Nudges that were offered, and settings of workspaces, as views."""

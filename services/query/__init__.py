"""Recall: arms, fusion, recipes and the hot index."""

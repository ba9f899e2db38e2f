"""The arms of recall: each finds candidates in the hot index, under a scope, its own way."""

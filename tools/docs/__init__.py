"""Writes the parts of docs/reference that come from the code: commands with their flags, keys, metrics."""

"""Writes those parts of docs/reference that the code knows better: commands with their flags, keys, metrics."""

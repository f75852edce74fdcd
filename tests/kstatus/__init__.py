"""The judge of the field: a small program around the Go library kstatus, and what calls it."""

"""A small program around the Go library kstatus, and the code that calls it."""

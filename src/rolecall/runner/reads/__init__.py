"""Reads as triggers: what runs have read, how it is watched, and which of its changes wake an object."""

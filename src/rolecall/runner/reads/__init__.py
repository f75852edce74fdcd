"""Reads as triggers: the objects that runs have read, how they are watched, and which changes trigger a reconcile."""

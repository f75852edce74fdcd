"""Histories about prune: roles that state what they need, and everything that may keep a run from naming it."""

"""Least privilege: the RBAC rules that an operator needs, derived from the recorded requests of its runs."""

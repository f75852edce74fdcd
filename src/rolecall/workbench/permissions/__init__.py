"""Least privilege: the RBAC rules that an operator needs, from what its runs were recorded to ask for."""

"""What runs name, the inventory of a primary, and what follows from both; ``reconcile/pruner.py`` acts on it."""

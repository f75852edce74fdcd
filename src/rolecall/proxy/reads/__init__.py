"""How the proxy handles reads: discovery of dependents, and what a run has read."""

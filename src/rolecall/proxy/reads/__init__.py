"""How the proxy handles reads: responses from the cache, and discovery of dependents."""

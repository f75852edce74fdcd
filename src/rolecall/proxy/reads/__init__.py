"""What the proxy does with reads: answers from the cache, and dependents that are found on the way."""

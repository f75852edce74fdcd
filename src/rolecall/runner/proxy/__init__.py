"""The API endpoint for runs.

Each run gets a URL on loopback and its own secret. Through the proxy it reaches the API server with the operator's
permissions until the run ends. The proxy injects the primary as the owner of created objects, reports dependent kinds
so that they are watched, and records the run's writes so that they do not trigger another reconcile.
"""

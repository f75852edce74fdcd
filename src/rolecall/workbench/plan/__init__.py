"""``rolecall plan``: what the roles would change, found out by running them against a sandbox of the cluster."""

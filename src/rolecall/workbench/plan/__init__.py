"""``rolecall plan``: the changes that roles would make, found by running them against a sandbox of the cluster."""

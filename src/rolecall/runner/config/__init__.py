"""The configuration of the operator: ``watches.yaml``, settings, and environment variables."""

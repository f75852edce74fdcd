"""What the operator was told: ``watches.yaml``, its settings, and its environment."""

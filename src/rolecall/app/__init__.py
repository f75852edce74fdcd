"""The operator itself: ``watches.yaml``, settings, the reconcile in named steps, and the status that it writes."""

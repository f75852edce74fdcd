"""The demo: the control plane, the operator and every sample, in a live table until each has reached its end state."""

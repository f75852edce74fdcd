"""The demo: starts a control plane and the operator, applies every sample, and shows a table until all are done."""

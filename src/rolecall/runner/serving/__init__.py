"""The operator's own servers, and the Prometheus metrics: only this package imports the Prometheus client."""

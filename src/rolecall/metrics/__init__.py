"""Numbers about the operator, in the form that Prometheus reads.

Everything else is measured through small interfaces that its layer defines; only this package knows Prometheus. All
metrics of an operator hang on one ``Telemetry`` with a registry of its own, so that several operators in one process
do not meet. Neighbour: ``rolecall.serving`` serves them.
"""

"""Metrics in the form that Prometheus reads: the families, and the values they take.

The other layers know only small observer protocols of their own; only this package imports the Prometheus client. All
metrics of an operator belong to one ``OperatorMetrics`` with its own registry, so that several operators in one process
do not share any.
"""

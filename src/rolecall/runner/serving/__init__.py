"""The Prometheus metrics of the operator.

Other packages define small observer protocols; only this package imports the Prometheus client. All metrics of an
operator belong to one ``OperatorMetrics`` with its own registry, so that several operators in one process do not share
metrics.
"""

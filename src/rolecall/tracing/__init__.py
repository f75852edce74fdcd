"""Traces of reconciles, by OpenTelemetry.

A trace is a reconcile, its run, the tasks of the run, and the requests of each task to the API server, which is told of
the trace too. The spans are made from the record of the run when the reconcile has ended. Only ``traces`` is imported
by the operator; without an endpoint in the environment nothing else is, and OpenTelemetry is not either.
"""

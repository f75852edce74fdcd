"""The HTTP servers of the operator: health probes, metrics, and the endpoint for the metrics of roles.

They run in the operator's event loop, start before any kind is watched, serve on followers as well as on the leader,
and stop last.
"""

"""What the operator answers to others: probes, metrics, and the metrics that roles send.

Three small HTTP servers on the operator's loop. They start before any kind is watched, serve on followers as well as on
the leader, and stop last.
"""

"""The record of a run: what started it, its tasks, every request that they sent to the API server, and how it ended.

The proxy and the runner tell a ``RunRecord`` what happens. When the run has ended, its record stays in memory within a
budget and may be written to a file. Secrets are masked when a record leaves the memory of the operator.
"""

"""The record of a run: its causes, its tasks, its requests to the API server, and how it ended.

The proxy and the runner report to a ``RunRecord``. When the run has ended, its record may be written to a file, and for
the dashboard it stays in memory within a budget. Secrets are masked when a record leaves the memory of the operator.
"""

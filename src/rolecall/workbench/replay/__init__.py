"""``rolecall replay``: runs the current roles on the records of runs, and compares the writes.

A ``RecordSource`` fills a sandbox with the objects of the cluster that a record shows. The role runs there as in a
plan, and ``comparison`` compares its writes with those in the record.
"""

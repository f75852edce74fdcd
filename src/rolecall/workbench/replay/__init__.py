"""``rolecall replay``: runs the roles of today on the records of runs, and compares the writes.

A ``RecordSource`` fills a sandbox with what a record shows of its cluster. The role runs there as in a plan, and
``comparison`` tells how its writes differ from those in the record.
"""

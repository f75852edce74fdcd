"""``rolecall replay``: runs a role again on what a record says, and compares what it writes with the record."""

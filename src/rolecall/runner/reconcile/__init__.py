"""One reconcile: its steps, the status it writes, when the next one is due, and which changes do not start one."""

"""One reconcile: its steps, the status and conditions it writes, when the next one is due, and what does not start one."""

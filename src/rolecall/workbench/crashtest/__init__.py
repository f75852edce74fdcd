"""``rolecall crashtest``: kills runs and their operator after each write, in a sandbox, and compares the end states."""

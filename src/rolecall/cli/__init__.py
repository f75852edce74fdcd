"""The command line: one module for each command, exit codes, and nothing that another layer would need."""

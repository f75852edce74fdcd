"""The command line: one module for each command, its flags and its exit codes. No other package imports it."""

"""Judges from outside: tests that other projects wrote, run directly and through rolecall, and compared.

``python -m bench.judges DIR`` (``make judges DIR=…``) runs them for the checkouts below a directory. Nothing of these
projects is part of this repository. ``docs/reference/compatibility.md`` has recorded results and documented exceptions.
"""

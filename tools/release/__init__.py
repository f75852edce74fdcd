"""``make release``: everything that a release consists of, in one directory, from a commit; nothing is published."""

"""``make release``: builds all files of a release from a commit, in one directory, and publishes nothing."""

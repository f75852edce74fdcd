"""``rolecall explore``: edits the spec of an object in a sandbox, and compares each end state with a fresh object's."""

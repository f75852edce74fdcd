"""Records the sample of a new project, and makes the template of its recorded run from that."""

"""Records a run of a new project's sample, and writes the template of the recorded run."""

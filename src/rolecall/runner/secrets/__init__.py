"""Secret values: which values of a run are secret, how they are masked, and how its process keeps them out of files."""

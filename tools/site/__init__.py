"""The documentation as a site: the pages of the repository, their navigation, and the checks of what was built."""

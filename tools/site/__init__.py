"""The documentation as a site: its pages, its configuration with the navigation, and the checks of the result."""

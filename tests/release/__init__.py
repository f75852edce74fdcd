"""A release, made and installed as users install it; it takes packages from the registry."""

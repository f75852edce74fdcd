"""Code that unit and integration tests share; it imports nothing from either."""

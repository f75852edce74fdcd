"""Where changes come from: list and watch, the informer that remembers objects, and the retries of both."""

"""Where changes come from: reflectors that list and watch, the informers and caches they fill, and their retries."""

"""Where changes come from: reflectors that list and watch, the informers they fill, and their retries."""

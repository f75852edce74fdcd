"""The runner: the code that runs in a cluster. It knows nothing about the workbench."""

"""Creates the OLM bundle in deploy/olm from the rest of deploy/: the same kinds, permissions and Deployment."""

"""Access to the API server: references, the asynchronous client, discovery and errors.

This package does not depend on queues or on Ansible. Objects are the plain dictionaries that the API server sends. All
requests go through the official client, and all its failures become one family of errors.
"""

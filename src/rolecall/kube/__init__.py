"""The API server, seen from rolecall: references, the asynchronous client, discovery and errors.

Nothing here knows of queues or of Ansible. Objects are the plain dictionaries that the API server sends; this layer
gives them names and keys, asks for them through the official client, and translates every failure into one family of
errors.
"""

"""One run of Ansible: its variables, its workspace, its processes, its events and its outcome.

Nothing here knows about queues: a run is specified and carried out, and its outcome returned.
"""

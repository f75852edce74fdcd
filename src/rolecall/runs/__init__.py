"""What makes a run of Ansible: its variables, its workspace, its process, its events and the endpoint that it talks to.

Nothing here knows of queues: a job is given, run and summed up.
"""

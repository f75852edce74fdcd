"""From a change in the cluster to a request: predicates, triggers, the work queue and the workers that reconcile.

Nothing here knows about Ansible: a reconcile is any coroutine that takes a request and returns a result.
"""

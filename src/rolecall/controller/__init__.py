"""What makes a controller: informers, predicates, triggers, the work queue and the workers that reconcile.

Nothing here knows of Ansible: a reconcile is any coroutine that takes a request and gives a result.
"""

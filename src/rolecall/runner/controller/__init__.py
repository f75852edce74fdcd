"""From a change in the cluster to a request: informers, predicates, triggers, the work queue, and the dispatcher.

Nothing here knows Ansible: a reconcile is any coroutine from a request to a result.
"""

"""What a planned run does with tasks outside Kubernetes: which run, which are withheld, and which end the plan.

``rolecall plan`` runs a role against a sandbox of the cluster, which responds to requests to Kubernetes. This package
decides about everything else, in the process of ansible-playbook and its workers, both warm and cold: actions that
compute run, modules for files work in the plan's own directory, and anything else is withheld. The result of a withheld
task is unknown, and a task that uses it ends the plan. ``rolecall.workbench.plan.reconciles`` is the operator's side.

This is no protection from malice: the Python code of a role (filters, for example) is not restricted.
"""

"""What a planned run does with tasks that are not Kubernetes: which run, which are withheld, and what that ends.

``rolecall plan`` runs a role against a sandbox of the cluster. Requests to Kubernetes are answered there. What else a
role does is decided here, in the process of ansible-playbook and its workers, warm and cold alike: actions that compute
run, modules for files work in a folder of the plan's own, and anything else is withheld. The result of a
withheld task is not known. Whoever uses it ends the plan. ``rolecall.workbench.plan.reconciles`` is the side of the
operator.

This is no protection from malice: the Python code of a role (filters, for example) can do what it likes.
"""

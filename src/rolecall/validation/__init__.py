"""The strict check of a project: its watches file, its roles and playbooks, its definitions of kinds.

Nothing runs and no cluster is asked. ``validation`` puts the checks together, ``problem`` is what they find,
``ansible_check`` is the process in which ansible-core reads roles and playbooks, ``arguments`` checks the arguments of
a role, ``definitions`` compares them with the schema of the kind.
"""

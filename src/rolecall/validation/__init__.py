"""The strict check of a project: its watches file, its roles and playbooks, and its CRDs.

It runs nothing and needs no cluster. ``validate`` combines the checks, ``problem`` is a finding, ``ansible_check`` is
the process in which ansible-core loads roles and playbooks, ``argument_specs`` checks the argument specs of a role, and
``crds`` compares them with the schema of the kind.
"""

"""Warm runs: fork each run from a process that has imported Ansible already.

A single-threaded server process (``server``) has imported ansible-core, the plugins and modules in use and the
Kubernetes client. Each run is a forked child that does the same as ``rolecall.runner.runs.runner_process`` in a new
interpreter. ansible-playbook is a forked child of that (``playbook_process``), and so is each eligible module
(``ansible_patches.forked_modules``). The server itself runs nothing, so no state leaks from one run to the next.
``starter`` and ``client`` are the operator's side.
"""

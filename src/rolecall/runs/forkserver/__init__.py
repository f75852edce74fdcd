"""Warm plays: Ansible stays imported between the runs of an operator.

A single-threaded server process (`server`) has imported ansible-core, the plugins and modules in use and the Kubernetes
client. Each run is a forked child of it that does what `rolecall.runs.runner_process` does in a new process; ansible-playbook is
a forked child of that (`playbook`), and so is each eligible module (`modules`). Nothing runs in the server itself, so
that nothing leaks from one run to the next. `runner` has the operator's side.
"""

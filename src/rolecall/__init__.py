"""rolecall runs Ansible roles as Kubernetes operators."""

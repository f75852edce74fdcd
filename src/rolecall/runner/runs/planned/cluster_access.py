"""Whether a Kubernetes task reaches the API server that the run was given. Nothing here imports Ansible.

The run's environment leads to its proxy, and from there to the shadow. The shadow of this cluster cannot answer a task
that names another API server or kubeconfig, so such a task is withheld. Credentials alone do not matter, since they are
sent to the run's own proxy, nor does a context, which is looked for in the run's own kubeconfig.
"""

import os
from collections.abc import Mapping
from typing import Any

_BY_VARIABLE = {
    "K8S_AUTH_HOST": "host",
    "K8S_AUTH_KUBECONFIG": "kubeconfig",
    "K8S_AUTH_PROXY": "proxy",
    "KUBECONFIG": "kubeconfig",
    "HELM_KUBEAPISERVER": "host",
}
_ARGUMENTS = {"host": "host", "kubeconfig": "kubeconfig", "kubeconfig_path": "kubeconfig", "proxy": "proxy"}
_TASK_KUBECONFIG = "kubeconfig-"
"""How the names of kubeconfigs begin that the run has written for itself and its tasks."""


def reason_elsewhere(arguments: Mapping[str, Any], environment: Mapping[str, Any], own: Mapping[str, str]) -> str:
    """Return why a task does not reach the run's own API server; an empty string if it does.

    ``environment`` is what the task adds to the environment of the run, ``own``.
    """
    for name, value in environment.items():
        if name in _BY_VARIABLE and not _is_own(_BY_VARIABLE[name], value, own):
            return f"its environment sets {name}, which leads to another API server"
    for name, what in _ARGUMENTS.items():
        if arguments.get(name) and not _is_own(what, arguments[name], own):
            return f"its {name} leads to another API server"
    return ""


def _is_own(what: str, value: object, own: Mapping[str, str]) -> bool:
    """Whether a value is one that the run was given; a task may also repeat the one of an earlier task."""
    if what == "host":
        return str(value).rstrip("/") == own.get("K8S_AUTH_HOST", "").rstrip("/") != ""
    if what == "kubeconfig":
        known = {own.get(name, "") for name in ("KUBECONFIG", "K8S_AUTH_KUBECONFIG")} - {""}
        return str(value) in known or any(_are_siblings(str(value), each) for each in known)
    return False


def _are_siblings(one: str, other: str) -> bool:
    both = [os.path.split(path) for path in (one, other)]
    return both[0][0] == both[1][0] != "" and all(name.startswith(_TASK_KUBECONFIG) for _, name in both)

"""Which actions run in a planned run, and why the others do not. Nothing here imports Ansible.

An action is known by its full name, which comes from the file that Ansible has found for it: an alias, a redirect or an
old name leads to the same file, and a module of a role that hides a known one has no full name. What is in no table is
withheld, so that whatever is new is withheld as well.

Whether a Kubernetes task reaches the API server that the run was given. Nothing here imports Ansible.

The run's environment leads to its proxy, and from there to the sandbox. The sandbox of this cluster cannot answer a
task that names another API server or kubeconfig, so such a task is withheld. Credentials alone do not matter, since
they are sent to the run's own proxy, nor does a context, which is looked for in the run's own kubeconfig.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from rolecall.runner.runs.planned.files import FILE_MODULES

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


_COLLECTIONS = "/ansible_collections/"
_BUILTIN = "ansible.builtin"
_REMOTE_SCHEMES = ("http://", "https://", "ftp://", "oci://", "s3://")


class Kind(Enum):
    """What a planned run does with an action."""

    COMPUTES = auto()
    KUBERNETES = auto()
    FILES = auto()
    WITHHELD = auto()


@dataclass(frozen=True, slots=True)
class Verdict:
    """A kind and, if it is withheld, the reason in a few words; ``is_final`` if it never runs for real either."""

    kind: Kind
    reason: str = ""
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """What decides about a task: its action by its full name (empty if a role brings it) and where it would run."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    is_local: bool = True
    becomes: bool = False


_CONTROLLER = frozenset(
    f"{_BUILTIN}.{name}"
    for name in (
        *("add_host", "assert", "debug", "fail", "group_by", "include_vars", "pause", "set_fact", "set_stats"),
        "validate_argument_spec",
    )
) | {"ansible.utils.update_fact", "ansible.utils.fact_diff", "rolecall.util.requeue_after"}
"""They compute in the process of Ansible and need no host."""

_PURE_MODULES = frozenset(
    {
        *(f"{_BUILTIN}.{name}" for name in ("async_status", "gather_facts", "ping", "setup", "wait_for_connection")),
        "community.crypto.openssl_csr_pipe",
        "community.crypto.openssl_privatekey_pipe",
        "community.crypto.x509_certificate_pipe",
    }
)
"""They run on this machine and change nothing."""

_KUBERNETES = frozenset(
    {
        *(
            f"kubernetes.core.{name}"
            for name in (
                *("helm", "helm_info", "helm_template", "k8s", "k8s_cluster_info", "k8s_drain", "k8s_info"),
                *("k8s_json_patch", "k8s_rollback", "k8s_scale", "k8s_service", "k8s_taint"),
            )
        ),
        *(f"community.okd.{name}" for name in ("k8s", "openshift_process", "openshift_route")),
        *(f"redhat.openshift.{name}" for name in ("k8s", "openshift_process", "openshift_route")),
        *(f"kubevirt.core.{name}" for name in ("kubevirt_vm", "kubevirt_vm_info", "kubevirt_vmi_info")),
        *(f"rolecall.util.{name}" for name in ("k8s_event", "k8s_status")),
    }
)

_POD_REASONS = {
    "kubernetes.core.k8s_exec": "runs a program in a pod",
    "kubernetes.core.k8s_cp": "copies from or to a pod",
    "kubernetes.core.k8s_log": "pods of a plan write no logs",
    "rolecall.util.osdk_metric": "changes the metrics of the operator",
}
"""Withheld even if commands run: there is no such pod, or no such operator."""

_REASONS = {
    f"{_BUILTIN}.uri": "reaches another host",
    f"{_BUILTIN}.get_url": "reaches another host",
    **{
        f"{_BUILTIN}.{name}": "runs a program"
        for name in ("command", "shell", "raw", "script", "expect", "git", "pip", "package")
    },
    **{f"kubernetes.core.helm_{name}": "reaches another host" for name in ("pull", "registry_auth", "repository")},
}

_UNKNOWN = "its effect outside of Kubernetes is not known"


def full_name(path: str, ansible_folder: str) -> str:
    """Return the full name of a plugin or module by its file; empty if it belongs to a role, a playbook or a user."""
    if path.startswith(os.path.join(ansible_folder, "")):  # noqa: PTH118 - plain text
        return f"{_BUILTIN}.{_stem(path)}"
    _, found, inner = path.rpartition(_COLLECTIONS)
    parts = inner.split("/")
    if not found or len(parts) < 5 or parts[2] != "plugins":  # noqa: PLR2004 - namespace, name, plugins, kind, file
        return ""
    return ".".join((*parts[:2], *parts[4:-1], _stem(path)))


def classify(task: TaskFacts, own: Mapping[str, str]) -> Verdict:
    """Return what a planned run does with a task; ``own`` is the environment that the run was given."""
    if task.name in _CONTROLLER:
        return Verdict(Kind.COMPUTES)
    reason = _reason_by_place(task)
    if reason or task.name in _PURE_MODULES:
        return _verdict(Kind.COMPUTES, reason)
    if task.name in _KUBERNETES:
        elsewhere = reason_elsewhere(task.arguments, task.environment, own)
        return (
            Verdict(Kind.WITHHELD, elsewhere, is_final=True)
            if elsewhere
            else _verdict(Kind.KUBERNETES, _source(task) or _helm(task))
        )
    if task.name in FILE_MODULES:
        return _verdict(Kind.FILES, _file_module(task))
    reason = _POD_REASONS.get(task.name) or _REASONS.get(task.name, _UNKNOWN)
    return Verdict(Kind.WITHHELD, reason, is_final=task.name in _POD_REASONS)


def is_known(name: str) -> bool:
    """Whether a module may run, or a part of another action; its arguments are not looked at."""
    return name in _PURE_MODULES or name in _KUBERNETES or name in FILE_MODULES


def _reason_by_place(task: TaskFacts) -> str:
    if not task.name:
        return "a module or action plugin of the role"
    if not task.is_local:
        return "runs on another host"
    if task.arguments.get("fact_path") or task.arguments.get("post_renderer") or task.arguments.get("binary_path"):
        return "runs a program"
    return "runs as another user" if task.becomes else ""


def _verdict(kind: Kind, reason: str) -> Verdict:
    return Verdict(Kind.WITHHELD, reason) if reason else Verdict(kind)


def _helm(task: TaskFacts) -> str:
    """Return why a task of Helm reaches another host; empty if its chart is a local one, or it needs none."""
    arguments = task.arguments
    chart = str(arguments.get("chart_ref") or "")
    is_absent = arguments.get("state", arguments.get("release_state")) in ("absent", "uninstalled")
    if not task.name.startswith("kubernetes.core.helm") or not chart or is_absent:
        return ""
    if arguments.get("chart_repo_url") or arguments.get("dependency_update"):
        return "gets a chart from another host"
    is_local = chart.startswith(("/", "./", "../", "~"))
    return "" if is_local else "gets a chart from another host, unless its path begins with /, ./ or ../"


def _source(task: TaskFacts) -> str:
    """Return why a task reads from another host; an empty string if it does not."""
    return "reaches another host" if str(task.arguments.get("src") or "").startswith(_REMOTE_SCHEMES) else ""


def _file_module(task: TaskFacts) -> str:
    """Return why a module for files does more than that."""
    if reason := _source(task):
        return reason
    if task.name == f"{_BUILTIN}.wait_for" and {"host", "port"} & task.arguments.keys():
        return "reaches a port"
    provider = task.arguments.get("provider")
    if task.name == "community.crypto.x509_certificate" and provider not in ("selfsigned", "ownca", None):
        return "reaches another host"
    return ""


def _stem(path: str) -> str:
    return path.rpartition("/")[2].rpartition(".")[0]

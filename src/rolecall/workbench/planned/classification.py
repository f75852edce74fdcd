"""Which actions run in a planned run, and why the others don't. Nothing here imports Ansible.

An action is known by its full name, which comes from the file that Ansible has found for it: an alias, a redirect, or
an old name leads to the same file, and a module of a role that hides a known one has no full name. An action that isn't
in ``actions.yaml`` is withheld, so that new ones are withheld as well.

A Kubernetes task must reach the API server that the run was given. The run's environment leads to its proxy, and from
there to the sandbox. The sandbox of this cluster can't answer a task that names another API server or kubeconfig, so
such a task is withheld. Credentials don't matter, since they are sent to the run's own proxy, nor does a context, which
is looked up in the run's own kubeconfig.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from rolecall.runner.runs.discovery_image import PROXY_VARIABLE
from rolecall.workbench.planned.actions import (
    COMPUTING,
    FILE_MODULES,
    KUBERNETES,
    PURE,
    WITHHELD,
    WITHHELD_ALWAYS,
)

_COLLECTIONS = "/ansible_collections/"
_BUILTIN = "ansible.builtin"
_REMOTE_SCHEMES = ("http://", "https://", "ftp://", "oci://", "s3://")

_UNKNOWN = "its effect outside Kubernetes is not known"

_BY_VARIABLE = {
    "K8S_AUTH_HOST": "host",
    "K8S_AUTH_KUBECONFIG": "kubeconfig",
    "K8S_AUTH_PROXY": "proxy",
    "KUBECONFIG": "kubeconfig",
    "HELM_KUBEAPISERVER": "host",
}
_ARGUMENTS = {"host": "host", "kubeconfig": "kubeconfig", "kubeconfig_path": "kubeconfig", "proxy": "proxy"}
_TASK_KUBECONFIG = "kubeconfig-"
"""The start of the names of the kubeconfigs that the run has written for itself and its tasks."""


class ActionCategory(Enum):
    """What a planned run does with an action."""

    COMPUTES = auto()
    KUBERNETES = auto()
    FILES = auto()
    WITHHELD = auto()


@dataclass(frozen=True, slots=True)
class Verdict:
    """A category and, if it is withheld, a short reason; ``is_final`` if ``--run-commands`` doesn't run it either."""

    category: ActionCategory
    reason: str = ""
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """The basis of a verdict: the full name of the action (empty if a role brings it), and where it would run."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    is_local: bool = True
    becomes: bool = False


def full_name(path: str, ansible_directory: str) -> str:
    """Return the full name of a plugin or module by its file; empty if it belongs to a role, a playbook, or a user."""
    stem = path.rpartition("/")[2].rpartition(".")[0]
    if path.startswith(os.path.join(ansible_directory, "")):  # noqa: PTH118 - plain text
        return f"{_BUILTIN}.{stem}"
    _, found, inner = path.rpartition(_COLLECTIONS)
    parts = inner.split("/")
    if not found or len(parts) < 5 or parts[2] != "plugins":  # noqa: PLR2004 - namespace, name, plugins, kind, file
        return ""
    return ".".join((*parts[:2], *parts[4:-1], stem))


def is_known(name: str) -> bool:
    """Whether a module may run as part of another action, regardless of its arguments."""
    return name in PURE or name in KUBERNETES or name in FILE_MODULES


def classify(task: TaskFacts, own: Mapping[str, str]) -> Verdict:
    """Return how a planned run handles a task; ``own`` is the environment that the run was given."""
    name = task.name
    if name in COMPUTING:
        return Verdict(ActionCategory.COMPUTES)
    is_final = False
    reason = _reason_by_context(task)
    category = ActionCategory.COMPUTES
    if not reason and name in KUBERNETES:
        category = ActionCategory.KUBERNETES
        reason = reason_elsewhere(task.arguments, task.environment, own)
        is_final = bool(reason)
        reason = reason or _reason_by_arguments(task)
    elif not reason and name in FILE_MODULES:
        category = ActionCategory.FILES
        reason = _reason_by_arguments(task)
    elif not reason and name not in PURE:
        reason = WITHHELD_ALWAYS.get(name) or WITHHELD.get(name, _UNKNOWN)
        is_final = name in WITHHELD_ALWAYS
    return Verdict(ActionCategory.WITHHELD, reason, is_final) if reason else Verdict(category)


def _reason_by_context(task: TaskFacts) -> str:
    if not task.name:
        return "a module or action plugin of the role"
    if not task.is_local:
        return "runs on another host"
    if any(task.arguments.get(program) for program in ("fact_path", "post_renderer", "binary_path")):
        return "runs a program"
    return "runs as another user" if task.becomes else ""


def _reason_by_arguments(task: TaskFacts) -> str:
    """Return why a module for Kubernetes or files reaches something else; an empty string if it doesn't."""
    name, arguments = task.name, task.arguments
    if str(arguments.get("src") or "").startswith(_REMOTE_SCHEMES):
        return "reaches another host"
    if name == f"{_BUILTIN}.wait_for" and {"host", "port"} & arguments.keys():
        return "reaches a port"
    own_providers = ("selfsigned", "ownca", None)
    if name == "community.crypto.x509_certificate" and arguments.get("provider") not in own_providers:
        return "reaches another host"
    chart = str(arguments.get("chart_ref") or "")
    is_absent = arguments.get("state", arguments.get("release_state")) in ("absent", "uninstalled")
    if name.startswith("kubernetes.core.helm") and chart and not is_absent:
        if arguments.get("chart_repo_url") or arguments.get("dependency_update"):
            return "gets a chart from another host"
        if not chart.startswith(("/", "./", "../", "~")):
            return "gets a chart from another host, unless its path begins with /, ./ or ../"
    return ""


def reason_elsewhere(arguments: Mapping[str, Any], environment: Mapping[str, Any], own: Mapping[str, str]) -> str:
    """Return why a task doesn't reach the run's own API server; an empty string if it does.

    ``environment`` is added by the task to the environment of the run, ``own``.
    """
    for name, value in environment.items():
        if name in _BY_VARIABLE and not _is_own(_BY_VARIABLE[name], value, own):
            return f"its environment sets {name}, which leads to another API server"
    for name, what in _ARGUMENTS.items():
        if arguments.get(name) and not _is_own(what, arguments[name], own):
            return f"its {name} leads to another API server"
    return ""


def _is_own(what: str, value: object, own: Mapping[str, str]) -> bool:
    """Whether a value is one that the run was given; a task may also repeat that of an earlier task."""
    if what == "host":
        return str(value).rstrip("/") == own.get(PROXY_VARIABLE, "").rstrip("/") != ""
    if what == "kubeconfig":
        known = {own.get(name, "") for name in ("KUBECONFIG", "K8S_AUTH_KUBECONFIG")} - {""}
        directory, name = os.path.split(str(value))
        pairs = map(os.path.split, known)
        own_directories = {parent for parent, each in pairs if parent and each.startswith(_TASK_KUBECONFIG)}
        return str(value) in known or (name.startswith(_TASK_KUBECONFIG) and directory in own_directories)
    return False

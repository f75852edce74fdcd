"""Checks the manifests of an operator against what the operator needs: time, CPUs, permissions, disk space, and ports.

Whatever the files don't show, such as permissions that are granted elsewhere, is assumed to be right.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rolecall.kube.quantities import format_bytes, parse_bytes
from rolecall.runner.config.settings import Settings
from rolecall.workbench.project.kustomizations import Manifest, manifest_sets
from rolecall.workbench.project.problems import Problem, Severity, line_of
from rolecall.workbench.yaml_files import below, listed

SettingsReader = Callable[[Mapping[str, Any]], Settings | None]
"""Returns the settings of an operator's container, with 0 workers if it sets none; None for other containers."""

STOP_SECONDS: Final = 2
"""The time of a stop after the last reconcile: the operator releases its Lease, writes Events, and ends processes."""

_TMP: Final = "/tmp"  # noqa: S108 - the path in a container


@dataclass(frozen=True, slots=True)
class _Operator:
    """The container of an operator, with its pod and its settings."""

    manifest: Manifest
    pod: Mapping[str, Any]
    container: Mapping[str, Any]
    settings: Settings

    def has_variable(self, *prefixes: str) -> bool:
        """Return whether the container sets a variable whose name starts so, or sets variables from elsewhere."""
        names = [str(below(each).get("name")) for each in listed(self.container, "env")]
        return "envFrom" in self.container or any(name.startswith(prefixes) for name in names)

    def problem(self, place: Mapping[str, Any], key: str, text: str, severity: Severity = Severity.WARNING) -> Problem:
        """Return a problem with the last of these keys in a mapping."""
        line = line_of(place, key.rpartition(".")[2])
        return Problem(str(self.manifest.file), line, text, severity, self.manifest.title, key)


@dataclass(frozen=True, slots=True)
class DeployedOperator:
    """An operator in manifests: its namespace and settings, and the Roles and ClusterRoles applied with it."""

    namespace: str
    settings: Settings
    roles: tuple[Mapping[str, Any], ...]


def deployed_operators(
    paths: Iterable[Path], settings_of: SettingsReader, components: Iterable[Path] = ()
) -> Iterator[DeployedOperator]:
    """Yield the operators in these files and directories, with the kustomize components in use and with these."""
    for found in manifest_sets(*paths, components=tuple(components)):
        roles = tuple(each.value for each in found if each.value["kind"] in ("Role", "ClusterRole"))
        for operator in _operators_in(found, settings_of):
            namespace = below(operator.manifest.value, "metadata").get("namespace") or "default"
            yield DeployedOperator(str(namespace), operator.settings, roles)


def check_manifests(paths: Iterable[Path], settings_of: SettingsReader) -> Iterator[Problem]:
    """Yield the problems of the operators in these files and directories."""
    for found in manifest_sets(*paths):
        for operator in _operators_in(found, settings_of):
            for check in (_check_grace_period, _check_workers, _check_temporary_files, _check_probes):
                yield from check(operator)
            yield from _check_permissions(operator, found)


def _operators_in(found: Iterable[Manifest], settings_of: SettingsReader) -> Iterator[_Operator]:
    for manifest in found:
        pod = below(manifest.value, "spec", "template", "spec")
        for container in listed(pod, "containers"):
            if settings := settings_of(container):
                yield _Operator(manifest, pod, container, settings)


def _check_grace_period(operator: _Operator) -> Iterator[Problem]:
    key, limit = "terminationGracePeriodSeconds", operator.settings.grace_seconds
    found, needed = operator.pod.get(key, 30), math.ceil(limit) + STOP_SECONDS
    if isinstance(found, int) and found < needed:
        text = f"Kubernetes kills the pod after {found} s, but a stop takes up to {limit:g} s for runs, and more: set "
        yield operator.problem(operator.pod, key, f"{text}at least {needed}, or lower --graceful-shutdown-timeout")


def _check_workers(operator: _Operator) -> Iterator[Problem]:
    limits, workers = below(operator.container, "resources", "limits"), operator.settings.workers
    found = re.fullmatch(r"([0-9.]+)(m?)", str(limits.get("cpu")))
    if not found or operator.has_variable("MAX_CONCURRENT_RECONCILES_", "WORKER_"):
        return
    cpus = math.ceil(float(found[1]) / (1000 if found[2] else 1))
    if not workers and cpus == 1:
        text = (
            f"with {found[0]}, the operator reconciles one object of each kind at a time, because the number of CPUs "
        )
        text += "is the default of --max-concurrent-reconciles: raise the limit, or set the flag"
        yield operator.problem(limits, "limits.cpu", text)
    elif workers > 2 * cpus:
        text = f"{found[0]} is too little for --max-concurrent-reconciles={workers}, because a run needs half a CPU: "
        yield operator.problem(limits, "limits.cpu", f"{text}set {math.ceil(workers / 2)}, or lower the flag")


def _check_temporary_files(operator: _Operator) -> Iterator[Problem]:
    context, settings = below(operator.container, "securityContext"), operator.settings
    mounts = {below(at).get("mountPath"): below(at).get("name") for at in listed(operator.container, "volumeMounts")}
    if context.get("readOnlyRootFilesystem") is True and _TMP not in mounts and not operator.has_variable("TMPDIR"):
        text = f"the operator and its runs write to {_TMP}, which is read-only: mount an emptyDir there"
        yield operator.problem(context, "readOnlyRootFilesystem", text, Severity.ERROR)
    artifacts, records = settings.work_directory or Path(_TMP), settings.record_directory or Path()
    needed = settings.max_artifacts_bytes if artifacts.is_relative_to(_TMP) else 0
    needed += settings.record_directory_max_bytes if records.is_relative_to(_TMP) else 0
    volumes = {below(each).get("name"): below(each, "emptyDir") for each in listed(operator.pod, "volumes")}
    volume = volumes.get(mounts.get(_TMP), {})
    limit = str(volume.get("sizeLimit"))
    with suppress(ValueError):  # no limit, or an invalid one, which the API server rejects
        if parse_bytes(limit) < needed:
            text = f"Kubernetes evicts the pod when {_TMP} exceeds {limit}, but artifacts and records may take "
            text += f"{format_bytes(needed)}: raise the limit, or lower --max-artifacts-size or --record-dir-max-size"
            yield operator.problem(volume, "emptyDir.sizeLimit", text)


def _check_probes(operator: _Operator) -> Iterator[Problem]:
    address = operator.settings.health_probe_bind_address
    host, _, port = address.rpartition(":")
    named = {below(each).get("name"): below(each).get("containerPort") for each in listed(operator.container, "ports")}
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = below(operator.container, name, "httpGet")
        found = named.get(probe.get("port"), probe.get("port"))
        is_reached = str(found) == port and host not in ("127.0.0.1", "localhost", "[::1]")
        if isinstance(found, int) and probe.get("path") in ("/healthz", "/readyz") and not is_reached:
            text = f"the probe uses port {found}, but --health-probe-bind-address is {address!r}: change one of them"
            yield operator.problem(probe, f"{name}.httpGet.port", text, Severity.ERROR)


def _check_permissions(operator: _Operator, found: list[Manifest]) -> Iterator[Problem]:
    """Yield the permissions that the service account lacks, if all its roles are in the files."""
    account, settings = operator.pod.get("serviceAccountName"), operator.settings
    roles: dict[Manifest, bool] = {}  # whether they are bound in all namespaces
    for binding in found:
        if any(below(each).get("name") == account for each in listed(binding.value, "subjects")):
            title = " ".join(str(below(binding.value, "roleRef").get(key)) for key in ("kind", "name"))
            role = next((each for each in found if each.title == title), None)
            if role is None or "aggregationRule" in role.value:
                return
            roles[role] = roles.get(role, False) or binding.title.startswith("ClusterRoleBinding ")
    of_objects = [role for role in roles if roles[role] or operator.has_variable("WATCH_NAMESPACE")]
    if of_objects and (verbs := _missing(of_objects, "", "events", "create", "patch")):
        text = f"no rule permits the operator to {' and '.join(verbs)} events in the namespaces of its objects: add one"
        role = max(of_objects, key=lambda each: len(listed(each.value, "rules")))
        yield replace(operator, manifest=role).problem(role.value, "rules", text)
    needed = ("get", "create", "update", *(("list", "delete") if settings.shards else ()))
    if roles and settings.leader_elect and (verbs := _missing(roles, "coordination.k8s.io", "leases", *needed)):
        text = (
            f"no rule permits {account} to {', '.join(verbs)} leases (coordination.k8s.io), which --leader-elect needs"
        )
        yield operator.problem(operator.container, "args", f"{text}: add one", Severity.ERROR)


def _missing(roles: Iterable[Manifest], group: str, resource: str, *needed: str) -> list[str]:
    """Return the verbs that the rules of these roles don't permit."""
    granted = {
        verb
        for role in roles
        for rule in listed(role.value, "rules")
        if {"*", group} & {*listed(rule, "apiGroups")} and {"*", resource} & {*listed(rule, "resources")}
        for verb in listed(rule, "verbs")
    }
    return [verb for verb in needed if not granted & {"*", verb}]

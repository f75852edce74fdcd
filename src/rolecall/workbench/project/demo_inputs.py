"""The inputs of the demo: ``demo.yaml``, the manifests that it names, and the operator's process.

For each kind, ``demo.yaml`` lists the values to show and the goals, as JSONPaths into the object. A goal compares
strings, so a label ``"3"`` equals a count 3.

The ``openshift`` client applies manifests, in the order of their kustomizations: its three-way merge is that of
``kubectl apply``, so either can be repeated. It waits for CustomResourceDefinitions, because the API server serves a
new kind a moment after it has accepted its definition. Only plain lists of ``resources`` are supported.

The operator runs as a child process with a kubeconfig. Its log, written to a file, contains the duration of each run.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from jsonpath_ng import JSONPath
from kubernetes.config import new_client_from_config
from openshift.dynamic import DynamicClient
from openshift.dynamic.exceptions import DynamicApiError, NotFoundError, ResourceNotFoundError

from rolecall.kube.errors import plain_errors
from rolecall.kube.jsonpath import parse_path, values_at
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.workbench.project.demo_runs import RunLog, last_warnings
from rolecall.workbench.yaml_files import below

KUSTOMIZATION = "kustomization.yaml"
ESTABLISHED_SECONDS = 20
_POLL_SECONDS = 0.1

STOP_SECONDS = 30.0
DEFAULT_NAMESPACE = "default"
"""The namespace of an object without one, as for kubectl."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The goal of one kind: its conditions, and the columns that show the progress."""

    gvk: GVK
    columns: tuple[tuple[str, JSONPath], ...]
    until: tuple[tuple[JSONPath, Any], ...]
    """The paths whose values equal a literal, or the values at another path."""

    def is_reached(self, obj: RawObject) -> bool:
        """Return whether the object has reached the goal."""
        for path, expected in self.until:
            found = [str(value) for value in values_at(path, obj)]
            wanted = values_at(expected, obj) if isinstance(expected, JSONPath) else [expected]
            if not found or found != [str(value) for value in wanted]:
                return False
        return True

    def values(self, obj: RawObject) -> str:
        """Return the values of the columns, as ``name=value``."""
        found = ((name, values_at(path, obj)) for name, path in self.columns)
        return " ".join(f"{name}={values[0]}" for name, values in found if values)


@dataclass(frozen=True, slots=True)
class DemoFile:
    """The definitions to apply before the operator starts, the samples to apply afterward, and the goals."""

    definitions: tuple[Path, ...]
    samples: tuple[Path, ...]
    goals: tuple[Goal, ...]


def read_demo_file(path: Path) -> DemoFile:
    """Read ``demo.yaml``; the paths in it are relative to the file.

    Raise ValueError with the name of the file if it is invalid.
    """
    try:
        document = yaml.safe_load(path.read_text())
        definitions = tuple(path.parent / name for name in document["definitions"])
        samples = tuple(path.parent / name for name in document["samples"])
        return DemoFile(definitions, samples, tuple(map(_read_goal, document["goals"] or ())))
    except (AttributeError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: expected definitions, samples and goals: {error!r}") from error


def _read_goal(raw: Any) -> Goal:
    columns = tuple(
        (text.replace("['", ".").replace("']", "").rpartition(".")[2], parse_path(text))
        for text in raw.get("columns") or ()
    )
    until = tuple(
        (parse_path(item["path"]), parse_path(value) if str(value).startswith("$") else value)
        for item in raw["until"]
        for value in [item["equals"]]
    )
    return Goal(GVK.of(raw["apiVersion"], raw["kind"]), columns, until)


def read_manifests(path: Path) -> Iterator[RawObject]:
    """Yield every object of a file or directory, in the order of its kustomization (without one: by file name).

    Raise FileNotFoundError if the path does not exist.
    """
    if path.is_dir():
        kustomization = path / KUSTOMIZATION
        if kustomization.is_file():
            names = yaml.safe_load(kustomization.read_text()).get("resources") or []
        else:
            names = sorted(child.name for child in path.glob("*.yaml"))
        for name in names:
            yield from read_manifests(path / name)
    else:
        yield from (document for document in yaml.safe_load_all(path.read_text()) if document)


def watched_kinds(project: Path) -> frozenset[tuple[str, str]] | None:
    """Return the group and kind of each entry of watches.yaml, None if it can't be read: the operator reports why."""
    try:
        found = yaml.safe_load((project / "watches.yaml").read_text(encoding="utf-8")) or []
        return frozenset((str(each.get("group") or ""), str(each["kind"])) for each in found)
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError, AttributeError):
        return None


def unwatched_samples(
    samples: Iterable[RawObject], definitions: Iterable[RawObject], watched: frozenset[tuple[str, str]]
) -> dict[GVK, list[ObjectKey]]:
    """Return the samples whose kind is defined by the project, but not watched, by kind."""
    specs = [below(each, "spec") for each in definitions if each.get("kind") == "CustomResourceDefinition"]
    defined = {(spec.get("group"), below(spec, "names").get("kind")) for spec in specs} - watched
    found: dict[GVK, list[ObjectKey]] = {}
    for gvk, key in ((GVK.of_object(each), ObjectKey.of_object(each)) for each in samples):
        if (gvk.group, gvk.kind) in defined:
            found.setdefault(gvk, []).append(key)
    return found


class Applier:
    """Apply objects to the cluster of a kubeconfig file."""

    def __init__(self, kubeconfig: Path) -> None:
        self._client = DynamicClient(new_client_from_config(str(kubeconfig)))

    def apply(self, objects: Iterable[RawObject]) -> list[ObjectKey]:
        """Apply the objects in order and return the namespace and name of each: a missing namespace is the default one.

        Raise ValueError if the API server rejects an object, or doesn't serve its kind.
        Raise TimeoutError if a CustomResourceDefinition does not become established.
        """
        return [self._apply(obj) for obj in objects]

    def _apply(self, obj: RawObject) -> ObjectKey:
        gvk, key = GVK.of_object(obj), ObjectKey.of_object(obj)
        try:
            resource = self._resource(gvk)
            key = ObjectKey((key.namespace or DEFAULT_NAMESPACE) if resource.namespaced else "", key.name)
            resource.apply(body=obj, namespace=key.namespace or None)
        except ResourceNotFoundError as error:
            text = (
                f"the API server serves no {gvk.kind} of {gvk.api_version}: apply its CustomResourceDefinition before"
            )
            raise ValueError(f"{gvk.kind} {key} can't be applied: {text}") from error
        except DynamicApiError as error:
            body = error.body.decode(errors="replace") if isinstance(error.body, bytes) else str(error.body)
            raise ValueError(f"{gvk.kind} {key} can't be applied: {plain_errors(body)}") from error
        if gvk.kind == "CustomResourceDefinition":
            self._wait_until_established(key.name)
        return key

    def _resource(self, gvk: GVK) -> Any:
        deadline = time.monotonic() + ESTABLISHED_SECONDS
        while True:
            try:
                return self._client.resources.get(api_version=gvk.api_version, kind=gvk.kind)
            except (NotFoundError, ResourceNotFoundError):
                if time.monotonic() > deadline:
                    raise
                self._client.resources.invalidate_cache()
                time.sleep(_POLL_SECONDS)

    def _wait_until_established(self, name: str) -> None:
        definitions = self._resource(GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition"))
        for event in definitions.watch(name=name, timeout=ESTABLISHED_SECONDS):
            conditions = (event["raw_object"].get("status") or {}).get("conditions") or ()
            if any(item["type"] == "Established" and item["status"] == "True" for item in conditions):
                return
        raise TimeoutError(f"CustomResourceDefinition {name} was not established within {ESTABLISHED_SECONDS} s")


@dataclass(slots=True)
class OperatorProcess:
    """``rolecall run`` in the directory of a project."""

    project: Path
    kubeconfig: Path
    log: Path
    arguments: tuple[str, ...] = ()
    """Further flags of ``rolecall run``."""

    runs: RunLog = field(default_factory=RunLog)
    """What its log has reported."""

    _process: subprocess.Popen[bytes] | None = None
    _read_to: int = 0

    def start(self) -> None:
        """Start the operator."""
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        command = [sys.executable, "-m", "rolecall", "run", "--zap-encoder", "json", *self.arguments]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self.project, env=environment, stderr=log, stdout=log, start_new_session=True
            )

    @property
    def pid(self) -> int:
        """The process ID. Raise RuntimeError before the start."""
        if self._process is None:
            raise RuntimeError("the operator has not been started")
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the operator has exited by itself."""
        return self._process is not None and self._process.poll() is not None

    def stop(self) -> None:
        """Stop the operator and wait until it has exited."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def read_log(self) -> None:
        """Record the runs that ended since the last call."""
        with self.log.open("rb") as log:
            log.seek(self._read_to)
            lines = log.read()
        end = lines.rfind(b"\n") + 1
        self._read_to += end
        for line in lines[:end].splitlines():
            self.runs.add(line)

    def warnings(self, count: int = 10) -> str:
        """Return the last warnings and errors of the log, and lines that aren't entries of it."""
        return "\n".join(last_warnings(self.log.read_text(errors="replace").splitlines(), count))

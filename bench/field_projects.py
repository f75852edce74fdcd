"""The parts of an existing operator project that its image and its manager's Deployment would give to the runner.

A project is a directory in the layout of the Operator SDK: a watches file, roles and playbooks, and CRDs in
``config/crd/bases``. A Deployment in ``config/manager`` or ``deploy``, or the newest ClusterServiceVersion, has a
container that sets variables and arguments; a Dockerfile, whose ``ENV`` and ``ENTRYPOINT`` add more. Nothing is built
or rendered.
"""

import json
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from rolecall.kube.references import RawObject

NAMESPACE: Final = "field"
_KEYS: Final = frozenset({"project", "object", "name", "collections", "manifests", "variables", "arguments"})
_DOCKERFILES: Final = ("Dockerfile", "Containerfile", "build/Dockerfile")
_VERSION: Final = "*clusterserviceversion*"
_MANAGER_PLACES: Final = ("config/manager/*.y*ml", "deploy/*.y*ml", f"bundle/manifests/{_VERSION}", f"**/{_VERSION}")
_FIELD_VALUES: Final = {
    "metadata.namespace": NAMESPACE,
    "metadata.annotations['olm.targetNamespaces']": NAMESPACE,
    "metadata.name": "operator",
}
"""The values of variables that refer to a field of the manager's pod; others aren't set."""


_REPLACED: Final = {
    "metrics-bind-address": True,
    "metrics-addr": True,
    "health-probe-bind-address": True,
    "leader-elect": False,
    "enable-leader-election": False,
}
"""Flags for which an image needs a cluster, with their old names, and whether the next word can be the value."""


class ProjectError(RuntimeError):
    """A project lacks a part, or the part can't be read; the message names the file."""


@dataclass(frozen=True, slots=True)
class Project:
    """A project's directory, the object to reconcile, and what the operator and the cluster need."""

    name: str
    directory: Path
    sample: RawObject
    variables: Mapping[str, str]
    arguments: Sequence[str] = ()
    manifests: Sequence[Path] = ()
    collections: Path | None = None

    def stage(self, home: Path) -> None:
        """Copy the project into an empty home directory, as its image does, with its collections and roles path."""
        copied(self.directory, home)
        # Takes the place of the base image's /etc/ansible/ansible.cfg.
        (home / ".ansible.cfg").write_text(f"[defaults]\nroles_path = {home / 'roles'}\n")
        (home / ".ansible").mkdir(exist_ok=True)
        if self.collections:
            (home / ".ansible" / "collections").symlink_to(self.collections)


def copied(source: Path, target: Path) -> Path:
    """Copy another project's directory without links that lead out of the copy, because writes would follow them."""
    ignored = shutil.ignore_patterns(".git", "node_modules")
    shutil.copytree(source, target, symlinks=True, ignore=ignored, dirs_exist_ok=True)
    for path in target.rglob("*"):
        if path.is_symlink() and not path.resolve().is_relative_to(target.resolve()):
            path.unlink()
    return target


def read_projects(file: Path) -> Iterator[Project]:
    """Yield the projects of a YAML file: a list of mappings, whose paths are relative to it. Raise ProjectError."""
    base, entries = file.resolve().parent, next(iter(_documents(file)), None)
    for entry in entries if isinstance(entries, list) else [entries]:
        if not isinstance(entry, dict) or not {"project", "object"} <= entry.keys() <= _KEYS:
            raise ProjectError(f"{file}: expected a list of mappings with project and object, found {entry!r}")
        project = (base / entry["project"]).resolve()
        places = project / entry["object"], base / entry["object"]
        samples = next((_documents(path) for path in places if path.is_file()), [])
        manifests = [path for path in [project / "config/crd/bases"] if path.is_dir()]
        manifests += [base / each for each in entry.get("manifests", ())]
        collections = (base / entry["collections"]).resolve() if "collections" in entry else None
        for path in (project, *manifests, *([collections / "ansible_collections"] if collections else [])):
            if not path.exists():
                raise ProjectError(f"{path}: no such file or directory, named in {file}")
        if len(samples) != 1:
            raise ProjectError(f"{entry['object']}: expected a file with one object, in {project} or {base}")
        samples[0]["metadata"].pop("namespace", None)  # each run has one namespace, and its operator watches that
        variables, arguments = manager(project, entry.get("variables", {}))
        arguments += entry.get("arguments", ())
        name = entry.get("name", project.name)
        yield Project(name, project, samples[0], variables, arguments, manifests, collections)


def manager(project: Path, given: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Return the variables and arguments of the operator: those of its image, its container, and the given ones."""
    variables, arguments = _image(project)
    container = _manager_container(project)
    for item in container.get("env") or ():
        value = item.get("value") or ""
        if "valueFrom" in item:
            value = _FIELD_VALUES.get(_at(item, "valueFrom", "fieldRef", "fieldPath"))
        if value is not None and "${" not in str(value):  # a template of the project's own Makefile
            variables[item["name"]] = str(value)
    variables = {"WATCH_NAMESPACE": NAMESPACE, **variables, **{name: str(value) for name, value in given.items()}}
    words = map(str, (*arguments, *(container.get("args") or ())))
    return variables, [re.sub(r"\$\((\w+)\)", lambda match: variables.get(match[1], match[0]), word) for word in words]


def with_own_flags(command: Iterable[str], metrics_address: str = "0") -> list[str]:
    """Return an operator's command without the project's flags for metrics, probes, and leader election, with ours.

    The Operator SDK's program rejects a flag together with its old name.
    """
    kept, words = [], iter(command)
    for word in words:
        name, assignment, _ = word.removeprefix("--").partition("=")
        if not word.startswith("--") or name not in _REPLACED:
            kept.append(word)
        elif _REPLACED[name] and not assignment:
            next(words, None)
    own = (f"--metrics-bind-address={metrics_address}", "--health-probe-bind-address=0", "--leader-elect=false")
    return [*kept, *own]


def _image(project: Path) -> tuple[dict[str, str], list[str]]:
    """Return the variables and the arguments after ``run`` that a project's Dockerfile sets."""
    files = [path for name in _DOCKERFILES if (path := project / name).is_file()]
    variables: dict[str, str] = {}
    arguments: list[str] = []
    for line in files[0].read_text().replace("\\\n", " ").splitlines() if files else ():
        instruction, _, rest = line.strip().partition(" ")
        if instruction == "ENV" and "$" not in rest:
            variables |= dict(word.split("=", 1) for word in shlex.split(rest) if "=" in word)
        elif instruction == "ENTRYPOINT" and rest.lstrip().startswith("["):
            words = json.loads(rest)
            arguments = words[words.index("run") + 1 :] if "run" in words else []
    return variables, arguments


def _manager_container(project: Path) -> RawObject:
    """Return the container of the operator's Deployment, or of the newest ClusterServiceVersion; {} without either."""
    for pattern in _MANAGER_PLACES:
        files = sorted(project.glob(pattern), key=lambda path: [int(n) for n in re.findall(r"\d+", str(path))])
        for document in (document for file in reversed(files) for document in _documents(file)):
            is_deployment = _at(document, "kind") == "Deployment"
            deployments = [document] if is_deployment else _at(document, "spec", "install", "spec", "deployments") or ()
            for deployment in deployments:
                containers = _at(deployment, "spec", "template", "spec", "containers") or [{}]
                found: RawObject = max(containers, key=lambda each: "WATCH_NAMESPACE" in str(each.get("env")))
                return found
    return {}


def _documents(file: Path) -> list[Any]:
    """Return the documents of a YAML file; a file that isn't YAML, such as a template, has none."""
    try:
        return [each for each in yaml.safe_load_all(file.read_text()) if each]
    except (yaml.YAMLError, UnicodeDecodeError):
        return []


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value

"""The parts of an existing operator project that its image and its manager's Deployment would give to the runner.

A project is a directory in the layout of the Operator SDK, or near to it: a watches file, roles and playbooks; CRDs
below ``config/crd/bases`` or elsewhere; a Deployment in ``config/manager`` or a ClusterServiceVersion, whose container
sets variables and arguments; a Dockerfile, whose ``ENV`` and ``ENTRYPOINT`` add more. Nothing is built or rendered.
Every problem is a ``ProjectError`` that names the directory and the missing part.
"""

import json
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from rolecall.kube.references import RawObject

NAMESPACE: Final = "field"
_CRD_PLACES: Final = ("config/crd/bases", "deploy/crds", "deploy", "config/crd", "bundle/manifests", "manifests")
_DOCKERFILES: Final = ("Dockerfile", "Containerfile", "build/Dockerfile")
_MANAGER_PLACES: Final = (
    "config/manager/*.y*ml",
    "deploy/*.y*ml",
    "bundle/manifests/*clusterserviceversion*",
    "**/*clusterserviceversion*",
)
_NOT_SEARCHED: Final = frozenset({".git", ".github", "node_modules", "molecule", "docs", "templates", "test", "tests"})
_SET_HERE: Final = ("--leader-elect", "--metrics-", "--health-probe-", "--zap-")
"""Starts of the flags that the comparison sets itself, or that name what only a cluster has."""
_FIELD_VALUES: Final = {
    "metadata.namespace": NAMESPACE,
    "metadata.annotations['olm.targetNamespaces']": NAMESPACE,
    "metadata.name": "operator",
}
"""The values of variables that refer to a field of the manager's pod; others aren't set."""
Kinds = set[tuple[Any, Any]]
"""Group and kind of watches."""


class ProjectError(Exception):
    """A project lacks a part, or the part can't be read."""


@dataclass(frozen=True, slots=True)
class Case:
    """A project as the user names it: paths, and what discovery can't find."""

    project: Path
    object: Path
    name: str = ""
    watches: str = ""
    collections: Path | None = None
    manifests: tuple[Path, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()

    def discover(self) -> "Project":
        """Return the project with everything that was found in its directory. Raise ProjectError."""
        if not self.project.is_dir():
            raise ProjectError(f"{self.project}: expected a project's directory, found none")
        for path in filter(None, (*self.manifests, self.collections)):
            if not path.exists():
                raise ProjectError(f"{path}: no such file or directory, named for project {self.project}")
        if self.collections and not (self.collections / "ansible_collections").is_dir():
            raise ProjectError(f"{self.collections}: expected a directory ansible_collections in it, found none")
        variables, arguments = self._manager()
        arguments += [f"--watches-file={self.watches}"] if self.watches else []  # the last one counts
        named = [each.partition("=")[2] for each in arguments if each.startswith("--watches-file=")]
        kinds = _watched_kinds(self.project, named[-1] if named else "watches.yaml")
        return Project(self, self._sample(kinds), _definitions(self.project, kinds), tuple(arguments), variables)

    def _sample(self, kinds: Kinds) -> RawObject:
        file = next((path for path in (self.project / self.object, self.object) if path.is_file()), None)
        if file is None:
            raise ProjectError(f"{self.object}: no such file, neither in {self.project} nor here; expected an object")
        for document in _documents(file):
            if (str(_at(document, "apiVersion")).rpartition("/")[0], _at(document, "kind")) in kinds:
                document["metadata"].pop("namespace", None)  # each run has one namespace, and its operator watches that
                sample: RawObject = document
                return sample
        raise ProjectError(f"{file}: expected an object of a watched kind ({_names(kinds)}), found none")

    def _manager(self) -> tuple[dict[str, str], list[str]]:
        """Return the variables and arguments of the operator, those of the image first."""
        variables, arguments = _image(self.project)
        container = _manager_container(self.project)
        for item in container.get("env") or ():
            value = item.get("value") or ""
            if "valueFrom" in item:
                value = _FIELD_VALUES.get(_at(item, "valueFrom", "fieldRef", "fieldPath"))
            if value is not None and "${" not in str(value):  # a template of the project's own Makefile
                variables[item["name"]] = str(value)
        variables = {"WATCH_NAMESPACE": NAMESPACE, **variables, **self.variables}
        given = [_expanded(str(each), variables) for each in (*arguments, *(container.get("args") or ()))]
        return variables, [*_kept(given), *self.arguments]


@dataclass(frozen=True, slots=True)
class Project:
    """A case, and the parts that were found for it, above all the object to reconcile."""

    case: Case
    sample: RawObject
    definitions: list[RawObject]
    arguments: tuple[str, ...]
    variables: Mapping[str, str]

    @property
    def name(self) -> str:
        """The given name, or that of the directory."""
        return self.case.name or self.case.project.resolve().name

    def stage(self, home: Path) -> None:
        """Copy the project into an empty home directory, as its image does, with its collections and roles path."""
        ignored = shutil.ignore_patterns(".git", "node_modules")
        shutil.copytree(self.case.project.resolve(), home, symlinks=True, ignore=ignored, dirs_exist_ok=True)
        # Takes the place of the base image's /etc/ansible/ansible.cfg.
        (home / ".ansible.cfg").write_text(f"[defaults]\nroles_path = {home / 'roles'}\n")
        (home / ".ansible").mkdir(exist_ok=True)
        if self.case.collections:
            (home / ".ansible" / "collections").symlink_to(self.case.collections.resolve())


def read_cases(file: Path) -> Iterator[Case]:
    """Yield the cases of a YAML file: a list of mappings with the keys of ``Case``; paths are relative to the file."""
    entries = next(iter(_documents(file)), None)
    if not isinstance(entries, list):
        raise ProjectError(f"{file}: expected a list of projects")
    base = file.resolve().parent
    for entry in entries:
        try:
            found = {**entry, "project": base / entry["project"], "object": Path(entry["object"])}
            found["collections"] = base / entry["collections"] if "collections" in entry else None
            found["manifests"] = tuple(base / each for each in entry.get("manifests", ()))
            found["variables"] = {key: str(value) for key, value in entry.get("variables", {}).items()}
            yield Case(**{**found, "arguments": tuple(entry.get("arguments", ()))})
        except (KeyError, TypeError, AttributeError) as error:
            raise ProjectError(f"{file}: {entry}: expected the keys project and object: {error!r}") from None


def _watched_kinds(project: Path, name: str) -> Kinds:
    file = project / name
    if not file.is_file():
        found = ", ".join(sorted(path.name for path in project.glob("watches*.y*ml"))) or "none"
        raise ProjectError(f"{file}: no such watches file (found: {found}); name one with --watches-file")
    watches = [each for document in _documents(file) if isinstance(document, list) for each in document]
    if not watches:
        raise ProjectError(f"{file}: expected a list of watches, found none")
    return {(each.get("group") or "", each.get("kind")) for each in watches}


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
        for file in reversed(files):
            if containers := [each for document in _documents(file) for each in _containers(document)]:
                manager: RawObject = max(containers, key=lambda each: "WATCH_NAMESPACE" in str(each.get("env")))
                return manager
    return {}


def _containers(document: Any) -> list[RawObject]:
    """Return the containers of a Deployment, or of the Deployments in a ClusterServiceVersion."""
    deployments = [document] if _at(document, "kind") == "Deployment" else []
    if _at(document, "kind") == "ClusterServiceVersion":
        deployments = _at(document, "spec", "install", "spec", "deployments") or []
    found = [_at(each, "spec", "template", "spec", "containers") or [] for each in deployments]
    return [container for containers in found for container in containers]


def _definitions(project: Path, kinds: Kinds) -> list[RawObject]:
    """Return the CRDs of the directory that has most of the watched kinds, and the missing ones from elsewhere."""
    missing = {each for each in kinds if "." in each[0]}
    found: dict[Path, dict[tuple[Any, Any], RawObject]] = {}
    for file in sorted(project.rglob("*.y*ml")):
        is_searched = not _NOT_SEARCHED.intersection(file.relative_to(project).parts[:-1])
        if is_searched and b"CustomResourceDefinition" in file.read_bytes():
            for document in _documents(file):
                if _at(document, "kind") == "CustomResourceDefinition":
                    kind = _at(document, "spec", "group"), _at(document, "spec", "names", "kind")
                    found.setdefault(file.parent, {})[kind] = document

    def rank(directory: Path) -> tuple[int, int, int]:
        place = directory.relative_to(project).as_posix()
        known = _CRD_PLACES.index(place) if place in _CRD_PLACES else len(_CRD_PLACES)
        return -len(kinds & found[directory].keys()), known, len(directory.parts)

    best, *others = sorted(found, key=rank) or [project]
    chosen = found.get(best, {})
    for directory in others:
        chosen |= {kind: found[directory][kind] for kind in missing - chosen.keys() if kind in found[directory]}
    missing = {each for each in missing - chosen.keys() if not each[0].endswith(".k8s.io")}  # mostly built in
    if missing:
        names = _names(missing)
        raise ProjectError(f"{project}: no CustomResourceDefinition of {names}; add a file with it to --manifests")
    return list(chosen.values())


def _kept(arguments: list[str]) -> Iterator[str]:
    """Yield the arguments except those that are set here; the value of a flag can be the next word."""
    is_dropped = False
    for word in arguments:
        is_dropped = word.startswith(_SET_HERE) if word.startswith("-") else is_dropped
        if not is_dropped:
            yield word


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    return re.sub(r"\$\((\w+)\)", lambda match: variables.get(match[1], match[0]), text)


def _documents(file: Path) -> list[Any]:
    """Return the documents of a YAML file; a file that isn't YAML, such as a template, has none."""
    try:
        return [each for each in yaml.safe_load_all(file.read_text()) if each]
    except (yaml.YAMLError, UnicodeDecodeError):
        return []


def _names(kinds: Kinds) -> str:
    return ", ".join(sorted(f"{kind}.{group}" for group, kind in kinds))


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value

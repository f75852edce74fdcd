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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from rolecall.kube.references import RawObject

NAMESPACE: Final = "field"
_CRD_PLACES: Final = ("config/crd/bases", "deploy/crds", "deploy", "config/crd", "bundle/manifests", "manifests")
_MANAGER_PLACES: Final = (
    "config/manager/*.y*ml",
    "deploy/*.y*ml",
    "bundle/manifests/*clusterserviceversion*",
    "**/*clusterserviceversion*",
)
_NOT_SEARCHED: Final = frozenset({".git", ".github", "node_modules", "molecule", "docs", "templates", "test", "tests"})
_SET_HERE: Final = ("--leader-elect", "--metrics-", "--health-probe-", "--zap-")
"""Starts of the flags that the comparison sets itself, or that name what only a cluster has."""
_OF_THE_NAMESPACE: Final = ("metadata.namespace", "metadata.annotations['olm.targetNamespaces']")


class ProjectError(Exception):
    """A project lacks a part, or the part can't be read."""


@dataclass(frozen=True, slots=True)
class Project:
    """One project with the object to reconcile; ``manifests`` are applied before the operator starts."""

    name: str
    directory: Path
    sample: RawObject
    watches: tuple[RawObject, ...]
    definitions: tuple[RawObject, ...]
    arguments: tuple[str, ...]
    variables: Mapping[str, str]
    collections: Path | None = None
    manifests: tuple[Path, ...] = ()

    def stage(self, home: Path) -> None:
        """Copy the project into an empty home directory, as its image does, with its collections and roles path."""
        ignored = shutil.ignore_patterns(".git", "node_modules")
        shutil.copytree(self.directory, home, symlinks=True, ignore=ignored, dirs_exist_ok=True)
        # Takes the place of the base image's /etc/ansible/ansible.cfg.
        (home / ".ansible.cfg").write_text(f"[defaults]\nroles_path = {home / 'roles'}\n")
        (home / ".ansible").mkdir(exist_ok=True)
        if self.collections:
            (home / ".ansible" / "collections").symlink_to(self.collections)


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

    def discover(self) -> Project:
        """Return the project with everything that was found in its directory. Raise ProjectError."""
        if not self.project.is_dir():
            raise ProjectError(f"{self.project}: expected a project's directory, found none")
        for path in (*self.manifests, *([self.collections] if self.collections else [])):
            if not path.exists():
                raise ProjectError(f"{path}: no such file or directory, named for project {self.project}")
        if self.collections and not (self.collections / "ansible_collections").is_dir():
            raise ProjectError(f"{self.collections}: expected a directory ansible_collections in it, found none")
        variables, arguments = self._manager()
        if self.watches:
            arguments = (
                *(each for each in arguments if "--watches-file" not in each),
                f"--watches-file={self.watches}",
            )
        named = [each.partition("=")[2] for each in arguments if each.startswith("--watches-file=")]
        watches = self._watches(named[-1] if named else "watches.yaml")
        sample = self._sample(watches)
        definitions = tuple(_definitions(self.project, watches))
        name = self.name or self.project.resolve().name
        return Project(
            *(name, self.project.resolve(), sample, watches, definitions, arguments, variables),
            *(self.collections.resolve() if self.collections else None, self.manifests),
        )

    def _watches(self, name: str) -> tuple[RawObject, ...]:
        file = self.project / name
        if not file.is_file():
            found = ", ".join(sorted(path.name for path in self.project.glob("watches*.y*ml"))) or "none"
            raise ProjectError(f"{file}: no such watches file (found: {found}); name one with --watches-file")
        watches = [each for document in _documents(file) if isinstance(document, list) for each in document]
        if not watches:
            raise ProjectError(f"{file}: expected a list of watches, found none")
        return tuple(watches)

    def _sample(self, watches: Iterable[RawObject]) -> RawObject:
        file = next((path for path in (self.project / self.object, self.object) if path.is_file()), None)
        if file is None:
            raise ProjectError(f"{self.object}: no such file, neither in {self.project} nor here; expected an object")
        kinds = {(each.get("group") or "", each.get("kind")) for each in watches}
        for document in _documents(file):
            if isinstance(document, dict) and _kind(document) in kinds:
                document["metadata"].pop("namespace", None)  # each run has one namespace, and its operator watches that
                return document
        wanted = ", ".join(sorted(f"{kind}.{group}" for group, kind in kinds))
        raise ProjectError(f"{file}: expected an object of a watched kind ({wanted}), found none")

    def _manager(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """Return the variables and arguments of the operator, those of the image first."""
        variables, arguments = _image(self.project)
        container = _manager_container(self.project)
        for item in container.get("env") or ():
            value = item.get("value")
            if value is None and "valueFrom" not in item:
                value = ""
            if value is None:
                path = (item["valueFrom"].get("fieldRef") or {}).get("fieldPath")
                value = NAMESPACE if path in _OF_THE_NAMESPACE else "operator" if path == "metadata.name" else None
            if value is not None and "${" not in str(value):  # a template of the project's own Makefile
                variables[item["name"]] = str(value)
        variables = {"WATCH_NAMESPACE": NAMESPACE, **variables, **self.variables}
        given = [_expanded(str(each), variables) for each in (*arguments, *(container.get("args") or ()))]
        return variables, (*_kept(given), *self.arguments)


def read_cases(file: Path) -> Iterator[Case]:
    """Yield the cases of a YAML file: a list of mappings with the keys of ``Case``; paths are relative to the file."""
    entries = next(iter(_documents(file)), None)
    if not isinstance(entries, list):
        raise ProjectError(f"{file}: expected a list of projects")
    base = file.resolve().parent
    for entry in entries:
        try:
            yield Case(
                base / entry.pop("project"),
                Path(entry.pop("object")),
                collections=base / found if (found := entry.pop("collections", None)) else None,
                manifests=tuple(base / each for each in entry.pop("manifests", ())),
                variables={key: str(value) for key, value in entry.pop("variables", {}).items()},
                arguments=tuple(entry.pop("arguments", ())),
                **entry,
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ProjectError(f"{file}: {entry}: expected the keys project and object: {error!r}") from None


def _image(project: Path) -> tuple[dict[str, str], list[str]]:
    """Return the variables and the arguments after ``run`` that a project's Dockerfile sets."""
    file = next(
        (path for name in ("Dockerfile", "Containerfile", "build/Dockerfile") if (path := project / name).is_file()),
        None,
    )
    variables: dict[str, str] = {}
    arguments: list[str] = []
    for line in file.read_text().replace("\\\n", " ").splitlines() if file else ():
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
            containers = [each for document in _documents(file) for each in _containers(document)]
            watching = [each for each in containers if "WATCH_NAMESPACE" in str(each.get("env"))]
            if watching or containers:
                return (watching or containers)[0]
    return {}


def _containers(document: Any) -> Iterator[RawObject]:
    if not isinstance(document, dict) or not isinstance(spec := document.get("spec"), dict):
        return
    if document.get("kind") == "ClusterServiceVersion":
        specs = [each["spec"] for each in (_at(spec, "install", "spec", "deployments") or ())]
    else:
        specs = [spec] if document.get("kind") == "Deployment" else []
    for each in specs:
        yield from _at(each, "template", "spec", "containers") or ()


def _definitions(project: Path, watches: Iterable[RawObject]) -> Iterator[RawObject]:
    """Yield the CRDs of the directory that has most of the watched kinds, and the missing ones from elsewhere."""
    wanted = {(each["group"], each["kind"]) for each in watches if "." in (each.get("group") or "")}
    found: dict[Path, list[RawObject]] = {}
    for file in sorted(project.rglob("*.y*ml")):
        if (
            not _NOT_SEARCHED.intersection(file.relative_to(project).parts[:-1])
            and b"CustomResourceDefinition" in file.read_bytes()
        ):
            kept = [
                each
                for each in _documents(file)
                if isinstance(each, dict) and each.get("kind") == "CustomResourceDefinition"
            ]
            found.setdefault(file.parent, []).extend(kept)

    def rank(directory: Path) -> tuple[int, int, int]:
        place = directory.relative_to(project).as_posix()
        known = _CRD_PLACES.index(place) if place in _CRD_PLACES else len(_CRD_PLACES)
        return -len(wanted & {_defined(each) for each in found[directory]}), known, len(directory.parts)

    missing, is_first = set(wanted), True
    for directory in sorted(found, key=rank):
        for each in found[directory]:
            if is_first or _defined(each) in missing:
                missing.discard(_defined(each))
                yield each
        is_first = False
    missing = {each for each in missing if not each[0].endswith(".k8s.io")}  # most of these are built in
    if missing:
        names = ", ".join(sorted(f"{kind}.{group}" for group, kind in missing))
        raise ProjectError(f"{project}: no CustomResourceDefinition of {names}; add a file with it to --manifests")


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


def _kind(obj: RawObject) -> tuple[str, Any]:
    return str(obj.get("apiVersion", "")).rpartition("/")[0], obj.get("kind")


def _defined(definition: RawObject) -> tuple[Any, Any]:
    return _at(definition, "spec", "group"), _at(definition, "spec", "names", "kind")


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value

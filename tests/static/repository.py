"""The repository's own manifests and roles, read once for the tests that compare them with each other."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())
BUILT_IN = {"Deployment": "deployments", "Event": "events", "Pod": "pods", "ReplicaSet": "replicasets"}

Document = dict[str, Any]


@cache
def documents(pattern: str) -> tuple[Document, ...]:
    """Return all YAML documents of the files that match, kustomizations left out."""
    paths = (path for path in sorted(ROOT.glob(pattern)) if path.name != "kustomization.yaml")
    return tuple(document for path in paths for document in yaml.safe_load_all(path.read_text()) if document)


def role_file(role: str, name: str) -> Any:
    """Return the content of a YAML file of a role, or nothing when there is no such file."""
    path = ROOT / "roles" / role / name
    return yaml.safe_load(path.read_text()) if path.exists() else {}


def watches() -> list[Document]:
    """Return the entries of watches.yaml."""
    entries: list[Document] = yaml.safe_load((ROOT / "watches.yaml").read_text())
    return entries


def crds() -> dict[str, Document]:
    """Return the CRDs by their kind."""
    return {crd["spec"]["names"]["kind"]: crd for crd in documents("deploy/crds/*.yaml")}


def schema(kind: str) -> Document:
    """Return the schema of the one version of a kind."""
    (version,) = crds()[kind]["spec"]["versions"]
    found: Document = version["schema"]["openAPIV3Schema"]
    return found


def plural(kind: str) -> str:
    """Return the name of a kind in RBAC rules."""
    return str(BUILT_IN.get(kind) or crds()[kind]["spec"]["names"]["plural"])


def tasks(*, of: str | None = None) -> list[Document]:
    """Return every task of a role, or of all roles and playbooks, those in blocks too."""
    patterns = [f"roles/{of or '*'}/tasks/*.yml"] + ([] if of else ["playbooks/tasks/*.yml"])
    found = [task for pattern in patterns for path in sorted(ROOT.glob(pattern)) for task in _list(path)]
    if of is None:
        found += [
            task for path in sorted(ROOT.glob("playbooks/*.yml")) for play in _list(path) for task in play["tasks"]
        ]
    return [each for task in found for each in _flat(task)]


def action(task: Document) -> str:
    """Return the name of the module that a task runs."""
    keywords = {"name", "when", "register", "failed_when", "vars", "loop", "loop_control", "block", "rescue", "always"}
    (name,) = set(task) - keywords
    return name


def _list(path: Path) -> list[Document]:
    content: list[Document] = yaml.safe_load(path.read_text())
    return content


def _flat(task: Document) -> list[Document]:
    inner = [each for key in ("block", "rescue", "always") for each in task.get(key, [])]
    return [each for child in inner for each in _flat(child)] if inner else [task]

"""Reads manifests as kustomize combines them: resources, components, and patches, with the lines of their fields.

Each set of manifests is what one ``kubectl apply -k`` would apply: one for each kustomization that no other one uses.
A directory without a kustomization is one set with all its files. Only objects of some kinds are read, so that large
CRDs cost nothing. Names keep their original form, without prefixes and suffixes. A field that a patch changes keeps its
line in the patched file.

A kustomization that refers to something outside the project, or has an unusual patch, is left out.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from rolecall.kube.selectors import selects
from rolecall.runner.config.yaml_reader import all_documents
from rolecall.workbench.yaml_files import below, listed, yaml_files

_KINDS: Final = re.compile(r"""kind["']?\s*:\s*["']?(Deployment|StatefulSet|(Cluster)?Role(Binding)?)\b""")
_IDENTITIES: Final = dict.fromkeys(("containers", "env", "volumes"), "name") | {"volumeMounts": "mountPath"}
"""The lists that a strategic merge patch merges, each with the key that identifies an item."""

_UNREADABLE: Final = (OSError, yaml.YAMLError, LookupError, ValueError, TypeError, AttributeError, RecursionError)


@dataclass(slots=True, eq=False)
class Manifest:
    """An object in a file."""

    file: Path
    value: dict[str, Any]

    @property
    def title(self) -> str:
        """The kind, and the name in the file."""
        return f"{self.value['kind']} {below(self.value, 'metadata').get('name')}"


def manifest_sets(*paths: Path, components: Collection[Path] = ()) -> Iterator[list[Manifest]]:
    """Yield the objects in these files and directories; those in one list are applied together.

    ``components`` are further components to apply to each kustomization; other directories in them are ignored.
    """
    further = [each for each in components if _kustomization(each).get("kind") == "Component"]
    for path in paths:
        kustomizations = {file.parent: _kustomization(file.parent) for file in sorted(path.rglob("[kK]ustomization*"))}
        used = {path for directory, each in kustomizations.items() for _, path in _references(directory, each)}
        for directory, kustomization in kustomizations.items():
            if directory not in used and kustomization.get("kind") != "Component":
                with suppress(*_UNREADABLE):
                    found = _build(directory, [])
                    for component in further:
                        _build(component, found)
                    yield found
        if not kustomizations:
            yield [each for file in yaml_files(path) for each in _read(file)]


def _kustomization(directory: Path) -> Mapping[str, Any]:
    """Return the kustomization in a directory, empty if it can't be read."""
    with suppress(*_UNREADABLE):
        return {**all_documents(min(directory.glob("[kK]ustomization*")).read_text(encoding="utf-8"))[0]}
    return {}


def _references(directory: Path, kustomization: Mapping[str, Any]) -> Iterator[tuple[str, Path]]:
    """Yield the files and directories that a kustomization uses, each with its key."""
    for key in ("resources", "bases", "components"):
        for name in listed(kustomization, key):
            yield key, Path(os.path.normpath(directory / str(name)))


def _read(file: Path) -> list[Manifest]:
    """Return the objects in a file, none if it isn't valid YAML."""
    with suppress(yaml.YAMLError, ValueError):
        text = file.read_text(encoding="utf-8")
        found = all_documents(text) if _KINDS.search(text) else []
        return [Manifest(file, each) for each in found if isinstance(each, dict) and "kind" in each]
    return []


def _build(directory: Path, found: list[Manifest]) -> list[Manifest]:
    """Add the objects of a kustomization to others; a component changes those others too."""
    kustomization = _kustomization(directory)
    # The keys of what can add or change anything.
    if not kustomization or {"helmCharts", "generators", "transformers", "replacements", "vars"} & kustomization.keys():
        raise ValueError(directory)
    for key, path in _references(directory, kustomization):
        if key == "components":
            _build(path, found)
        else:
            found += _build(path, []) if path.is_dir() else _read(path)
    merged = [{"path": each} for each in listed(kustomization, "patchesStrategicMerge")]
    for each in (*merged, *listed(kustomization, "patches"), *listed(kustomization, "patchesJson6902")):
        for patch in yaml.safe_load_all(each.get("patch") or (directory / each["path"]).read_text(encoding="utf-8")):
            _apply(found, patch, below(each, "target"))
    return found


def _apply(found: list[Manifest], patch: Any, target: Mapping[str, Any]) -> None:
    """Apply a patch to its targets."""
    selected = target or {"kind": patch["kind"], "name": patch["metadata"]["name"]}
    pattern = f"{selected.get('kind', '.*')} {selected.get('name', '.*')}"
    for each in list(found):
        with_prefix = each.title.replace(" ", " .*-")  # a patch can use the name that another kustomization has set
        is_named = re.fullmatch(pattern, each.title) or re.fullmatch(with_prefix, pattern)
        if not is_named or not selects(each.value, selected.get("labelSelector", ""), ""):
            continue
        if isinstance(patch, list):
            for operation in patch:
                _operate(each.value, operation)
        elif patch.get("$patch") == "delete":
            found.remove(each)
        else:
            _merge(each.value, {key: patch[key] for key in patch if key not in ("kind", "metadata")})


def _merge(base: dict[str, Any], patch: Mapping[str, Any]) -> None:
    """Apply a strategic merge patch."""
    for key, value in patch.items():
        old, identity = base.get(key), _IDENTITIES.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            _merge(old, value)
        elif isinstance(value, list) and isinstance(old, list) and identity:
            known = {item.get(identity): item for item in old}
            for item in value:
                _merge(known.setdefault(item[identity], {}), item)
            base[key] = list(known.values())
        else:
            base[key] = value


def _operate(value: Any, operation: Mapping[str, Any]) -> None:
    """Apply one operation of a JSON patch."""
    *above, last = (part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:])
    for part in above:
        value = value[int(part) if isinstance(value, list) else part]
    key = last if isinstance(value, dict) else len(value) if last == "-" else int(last)
    if operation["op"] == "remove":
        del value[key]
    elif operation["op"] == "add" and isinstance(value, list):
        value.insert(key, operation["value"])
    elif operation["op"] != "test":
        value[key] = operation["value"]

"""The objects that a project's run leaves in the cluster, and the differences between those of two runners.

A snapshot has every object of every listable kind, without what the API server and the built-in controllers set: server
metadata, assigned addresses and ports, the status of built-in kinds, and objects that belong to a built-in owner, such
as the pods of a ReplicaSet. UIDs are replaced by the object that has them, times and PEM blocks by a placeholder.

Two runs of the same role also differ in the random values that it generates. Two values count as random if they differ
in one stretch only, which has six characters or more on both sides, of at least two classes (lower case, upper case,
digits), and no white space; in a Secret, two values of equal length without white space are enough. Such pairs are
counted and can be listed: an image's digest would be one of them.
"""

import base64
import json
import os
import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import Any, Final

from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import RawObject

Objects = dict[str, Any]
"""Objects as they are compared, by ``Kind.group namespace/name``."""

_UNCOMPARED: Final = re.compile(
    r"(events|leases|nodes|componentstatuses|endpoints|endpointslices|csinodes|apiservices|ipaddresses)(\.|$)"
)
"""Resources that only built-in controllers write."""
_SERVER_METADATA: Final = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
_SERVER_FIELDS: Final = ("clusterIP", "clusterIPs", "nodePort", "healthCheckNodePort", "nodeName", "volumeName")
_RUNNER_STATUS: Final = ("conditions", "observedGeneration")
_BUILT_IN: Final = re.compile(r"^(v1|(apps|batch|autoscaling|policy)/.*|[\w.]*\.k8s\.io/.*)$")
_PATTERNS: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"\b1[6-9]\d{8}(?:\.\d+)?\b"), "<time>"),
    (re.compile(r"\b[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d (?:[AP]M )?[A-Z]+ \d{4}\b"), "<time>"),  # date's
    (re.compile(r"\b\d+:\d\d:\d\d\b"), "<duration>"),
    (re.compile(r"-----BEGIN ([A-Z ]+)-----.*?-----END \1-----", re.DOTALL), r"<PEM \1>"),
    (re.compile(r"\bkube-api-access-[a-z0-9]{5}\b"), "<token volume>"),
)
_LEAST_RANDOM: Final = 6
_SHOWN_ENDS: Final = (110, 40)
_CLASSES: Final = (re.compile("[a-z]"), re.compile("[A-Z]"), re.compile("[0-9]"))


@dataclass(slots=True)
class Comparison:
    """The outcome of a comparison; each difference is one line that names the object, the path, and both values."""

    equal: int = 0
    differences: list[str] = field(default_factory=list)
    random: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Return the numbers of all three, if they aren't zero."""
        differing = f", {len(self.differences)} differences" if self.differences else ""
        return f"{self.equal} equal{differing}" + (f", {len(self.random)} random values" if self.random else "")


@dataclass(frozen=True, slots=True)
class Kubectl:
    """The control plane's own kubectl, as administrator."""

    program: Path
    kubeconfig: Path

    def run(self, *arguments: str, text: str | None = None) -> str:
        """Run a command with a text as its input and return its output. Raise RuntimeError with its error output."""
        environment = {"KUBECONFIG": str(self.kubeconfig), "HOME": str(self.kubeconfig.parent), "PATH": os.defpath}
        done = subprocess.run(
            [self.program, *arguments], input=text, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"kubectl {' '.join(arguments[:2])}: {done.stderr.strip()[-2000:]}")
        return done.stdout

    def snapshot(self) -> Objects:
        """Return every object of the cluster as it is compared."""
        listed = self.run("api-resources", "--verbs=list", "--output=name").split()
        resources = [each for each in listed if not _UNCOMPARED.match(each)]
        found = json.loads(self.run("get", ",".join(resources), "--all-namespaces", "--output=json"))["items"]
        return comparable(found)


def comparable(found: list[RawObject]) -> Objects:
    """Return the objects that runs are responsible for, each without what the cluster sets."""
    uids = {str(metadata_of(obj)["uid"]): _name(obj) for obj in found}
    pattern = re.compile("|".join(map(re.escape, uids))) if uids else re.compile("(?!)")
    kept: Objects = {}
    for obj in found:
        owners = metadata_of(obj).get("ownerReferences") or ()
        if not any(_BUILT_IN.match(each["apiVersion"]) and each["kind"] != "Namespace" for each in owners):
            text = json.dumps(_without_server_fields(obj))
            text = pattern.sub(lambda match: f"<uid of {uids[match[0]]}>", text)
            clean = json.loads(text)
            kept.setdefault(_name(clean), clean)
    return kept


def written(before: Objects, after: Objects) -> Objects:
    """Return what was created, changed, or deleted (None) between two snapshots."""
    changed = {name: obj for name, obj in after.items() if before.get(name) != obj}
    return {**changed, **{name: None for name in before if name not in after}}


def compare(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Comparison:
    """Return the differences between the objects that two runners have written."""
    result = Comparison()
    for name in sorted({*ours, *theirs}):
        if name not in theirs:
            result.differences.append(f"{name}: only written by the operator")
        elif name not in ours:
            result.differences.append(f"{name}: only written by the peer")
        else:
            count = len(result.differences)
            _compare(ours[name], theirs[name], name, result)
            result.equal += len(result.differences) == count
    return result


def _compare(ours: Any, theirs: Any, path: str, result: Comparison) -> None:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted({*ours, *theirs}):
            _compare(ours.get(key), theirs.get(key), f"{path} {key}" if "." in key else f"{path}.{key}", result)
    elif isinstance(ours, list) and isinstance(theirs, list):
        for index, pair in enumerate(zip_longest(ours, theirs)):
            _compare(*pair, f"{path}[{index}]", result)
    elif ours != theirs:
        are_texts = isinstance(ours, str) and isinstance(theirs, str)
        is_random = are_texts and _are_random(ours, theirs, is_secret=path.startswith("Secret "))
        line = f"{path}: {_shown(ours)} instead of the peer's {_shown(theirs)}"
        (result.random if is_random else result.differences).append(line)


def _are_random(ours: str, theirs: str, *, is_secret: bool) -> bool:
    """Return whether two texts differ in random values only, line by line."""
    one, two = ours.splitlines(), theirs.splitlines()
    return len(one) == len(two) and all(
        a == b or _is_random_pair(a, b, is_secret=is_secret) for a, b in zip(one, two, strict=True)
    )


def _is_random_pair(ours: str, theirs: str, *, is_secret: bool) -> bool:
    start = _common_characters(ours, theirs)
    end = _common_characters(ours[start:][::-1], theirs[start:][::-1])
    stretches = [each[start : len(each) - end] for each in (ours, theirs)]
    if any(len(each) < _LEAST_RANDOM or re.search(r"\s", each) for each in stretches):
        return False
    is_mixed = all(sum(bool(kind.search(each)) for kind in _CLASSES) > 1 for each in stretches)
    return is_mixed or (is_secret and len(ours) == len(theirs))


def _common_characters(one: str, two: str) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False))))


def _without_server_fields(obj: RawObject) -> RawObject:
    metadata = {key: value for key, value in metadata_of(obj).items() if key not in _SERVER_METADATA}
    clean = {**{key: value for key, value in obj.items() if key != "status"}, "metadata": metadata}
    if not _BUILT_IN.match(str(obj["apiVersion"])) and isinstance(status := obj.get("status"), dict):
        # A condition has times, and the counts of the last of possibly several runs. Only rolecall writes the other.
        clean["status"] = {key: value for key, value in status.items() if key not in _RUNNER_STATUS}
    if obj["kind"] == "Secret":
        clean["data"] = {key: _decoded(value) for key, value in (obj.get("data") or {}).items()}
    cleaned: RawObject = _cleaned(clean)
    return cleaned


def _cleaned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _cleaned(inner) for key, inner in value.items() if key not in _SERVER_FIELDS}
    if isinstance(value, list):
        return [_cleaned(inner) for inner in value]
    if isinstance(value, str):
        if value.startswith("{"):  # such as the annotation with the last applied configuration
            with suppress(ValueError):
                return _cleaned(json.loads(value))
        for pattern, placeholder in _PATTERNS:
            value = pattern.sub(placeholder, value)
    return value


def _decoded(value: str) -> str:
    data = base64.b64decode(value)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"<{len(data)} bytes>"


def _name(obj: RawObject) -> str:
    metadata = metadata_of(obj)
    name = str(metadata["name"])
    if prefix := metadata.get("generateName"):
        name = f"{prefix}<generated>"
    group = str(obj["apiVersion"]).rpartition("/")[0]
    namespace = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{obj['kind']}{'.' if group else ''}{group} {namespace}{name}"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= sum(_SHOWN_ENDS) else f"{text[: _SHOWN_ENDS[0]]} … {text[-_SHOWN_ENDS[1] :]}"

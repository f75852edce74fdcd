"""The objects that a project's run leaves in the cluster, and the differences between those of two runners.

A snapshot has every object of every listable kind, without what the API server and the built-in controllers set: server
metadata, assigned addresses and ports, the status of built-in kinds, and objects that belong to a built-in owner, such
as the pods of a ReplicaSet. UIDs are replaced by the object that has them. Times and PEM blocks are no difference.

Two runs of the same role also differ in the random values that it generates. Two values count as random if they differ
in one stretch only, which has six characters or more on both sides, of at least two classes (lower case, upper case,
digits), and no white space; in a Secret, two values of equal length without white space are enough. So do names that
end with a hyphen and five of the characters with which the API server generates names: objects whose names differ only
there are compared with each other. Such pairs are counted and can be listed: an image's digest would be one of them.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from os.path import commonprefix
from typing import Any, Final

from bench.stage import Kubectl

from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.workbench.comparison.end_states import path_text
from rolecall.workbench.comparison.objects import compared
from rolecall.workbench.comparison.variables import leaves

Objects = dict[str, dict[str, Any] | None]
"""The values of objects by ``Kind.group namespace/name`` and path; None for a deleted object."""

_UNCOMPARED: Final = re.compile(
    r"(events|leases|nodes|componentstatuses|endpoints|endpointslices|csinodes|apiservices|ipaddresses)(\.|$)"
)
"""Resources that only built-in controllers write."""
_IGNORED: Final = re.compile(
    r"(^|\.)(clusterIPs?|nodePort|healthCheckNodePort|nodeName|volumeName)\b|^status\.(conditions|observedGeneration)\b"
)
"""Values that the cluster assigns. A condition has the counts of the last of possibly several runs, and only rolecall
writes observedGeneration."""
_PATTERNS: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"\b1[6-9]\d{8}(?:\.\d+)?\b"), "<time>"),
    (re.compile(r"\b[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d (?:[AP]M )?[A-Z]+ \d{4}\b"), "<time>"),  # date's
    (re.compile(r"\b\d+:\d\d:\d\d\b"), "<duration>"),
    (re.compile(r"-----BEGIN ([A-Z ]+)-----.*?-----END \1-----", re.DOTALL), r"<PEM \1>"),
    (re.compile(r"\bkube-api-access-[a-z0-9]{5}\b"), "<token volume>"),
)
_GENERATED: Final = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}(?![A-Za-z0-9])")
"""The end of a name that the API server has generated."""
_RANDOM: Final = re.compile(r"\S{6,}")
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


def snapshot(kubectl: Kubectl) -> Objects:
    """Return every object of the cluster as it is compared."""
    listed = kubectl.run("api-resources", "--verbs=list", "--output=name").split()
    resources = [each for each in listed if not _UNCOMPARED.match(each)]
    return comparable(json.loads(kubectl.run("get", ",".join(resources), "--all-namespaces", "--output=json"))["items"])


def comparable(found: list[RawObject]) -> Objects:
    """Return the objects that runs are responsible for, each without what the cluster sets."""
    names = {str(metadata_of(obj)["uid"]): _name(obj) for obj in found}
    uids = re.compile("|".join(map(re.escape, names)) or "(?!)")

    def cleaned(value: Any) -> Any:
        if isinstance(value, str):
            value = uids.sub(lambda match: f"<uid of {names[match[0]]}>", value)
            for pattern, placeholder in _PATTERNS:
                value = pattern.sub(placeholder, value)
        return value

    kept: Objects = {}
    for obj in found:
        gvk, owners = GVK.of_object(obj), metadata_of(obj).get("ownerReferences") or ()
        if not any(GVK.of_object(each).is_built_in and each["kind"] != "Namespace" for each in owners):
            content = leaves(compared(gvk, obj, with_status=not gvk.is_built_in), frozenset())
            values = {path_text(path): cleaned(value) for path, value in content}
            kept.setdefault(cleaned(_name(obj)), {path: values[path] for path in values if not _IGNORED.search(path)})
    return kept


def _name(obj: RawObject) -> str:
    gvk, key, prefix = GVK.of_object(obj), ObjectKey.of_object(obj), metadata_of(obj).get("generateName")
    key = replace(key, name=f"{prefix}<generated>") if prefix else key
    return f"{gvk.kind}.{gvk.group}".rstrip(".") + f" {key}"


def written(before: Objects, after: Objects) -> Objects:
    """Return what was created, changed, or deleted (None) between two snapshots."""
    changed = {name: obj for name, obj in after.items() if before.get(name) != obj}
    return {**changed, **{name: None for name in before if name not in after}}


def compare(ours: Objects, theirs: Objects) -> Comparison:
    """Return the differences between the objects that two runners have written."""
    result = Comparison()
    for name, peers_name in _pairs(ours, theirs):
        if not name or not peers_name:
            writer = "operator" if name else "peer"
            result.differences.append(f"{name or peers_name}: only written by the {writer}")
            continue
        one, two, count = ours[name] or {}, theirs[peers_name] or {}, len(result.differences)
        for path in dict.fromkeys((*one, *two)):
            pair = one.get(path), two.get(path)
            if pair[0] != pair[1]:
                is_random = _are_random(*pair, is_secret=name.startswith("Secret "))
                line = f"{name}.{path}: {pair[0]!r:.150} instead of the peer's {pair[1]!r:.150}"
                (result.random if is_random else result.differences).append(line)
        result.equal += len(result.differences) == count
    return result


def _pairs(ours: Objects, theirs: Objects) -> Iterator[tuple[str, str]]:
    """Yield the names of each object, with "" if only one runner wrote it.

    Of several objects whose names differ only in the generated end, the most similar ones are pairs.
    """
    unmatched: dict[str, tuple[list[str], list[str]]] = {}
    for index, (objects, others) in enumerate(((ours, theirs), (theirs, ours))):
        for name in sorted(objects.keys() - others, key=lambda name: _without_generated(str(objects[name]))):
            unmatched.setdefault(_without_generated(name), ([], []))[index].append(name)
    yield from ((name, name) for name in sorted(ours.keys() & theirs))
    for key in sorted(unmatched):
        yield from zip_longest(*unmatched[key], fillvalue="")


def _without_generated(text: str) -> str:
    return _GENERATED.sub("-<random>", text)


def _are_random(ours: Any, theirs: Any, *, is_secret: bool) -> bool:
    """Return whether two values are texts that differ in random values only, line by line."""
    if not (isinstance(ours, str) and isinstance(theirs, str)):
        return False
    lines = zip_longest(ours.splitlines(), theirs.splitlines(), fillvalue="")
    return all(
        _without_generated(one) == _without_generated(two) or _is_random_pair(one, two, is_secret=is_secret)
        for one, two in lines
    )


def _is_random_pair(ours: str, theirs: str, *, is_secret: bool) -> bool:
    start = len(commonprefix((ours, theirs)))  # noqa: RUF071 - these are no paths
    end = len(commonprefix((ours[start:][::-1], theirs[start:][::-1])))  # noqa: RUF071 - as above
    stretches = [each[start : len(each) - end] for each in (ours, theirs)]
    are_mixed = all(sum(bool(kind.search(each)) for kind in _CLASSES) > 1 for each in stretches)
    return all(map(_RANDOM.fullmatch, stretches)) and (are_mixed or (is_secret and len(ours) == len(theirs)))

"""Random scripts of requests, which the real API server and the simulated one must answer alike.

A script is made in advance from a seed. Values that differ between the servers, such as versions and uids, are
placeholders in it, which ``Transcript`` fills in: ``$version KIND NAME INDEX`` and ``$uid KIND NAME INDEX`` are those
of an object in an earlier response (the index -1 is the newest), and ``$continue`` is the last continue token.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rolecall.kube.discovery import group_version_path
from rolecall.kube.references import GVK, RawObject, plural_of
from tests.simulation.kinds import CONFIG_MAP, EVENT, LEASE, NEW_EVENT, POD, SECRET
from tests.support.things import THING

GADGET: Final = GVK(THING.group, THING.version, "Gadget")
NAMESPACED: Final = (THING, THING, THING, CONFIG_MAP, SECRET, LEASE, EVENT, POD)
MERGE_PATCH, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
PARTIAL: Final = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST: Final = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
UNKNOWN_UID: Final = "11111111-1111-4111-8111-111111111111"
_NAMES: Final = ("a", "b", "c")
_STEPS: Final = 30
_FINALIZERS: Final = ("example.com/one", "example.com/two")
_RARE_METADATA: Final[dict[str, tuple[Any, ...]]] = {
    "annotations": ({}, {"example.com/note": "text"}, {"Bad Key": ""}, None, {"example.com/note": 1}),
    "deletionTimestamp": ("2020-01-01T00:00:00Z",),
    "deletionGracePeriodSeconds": (0, 5),
    "creationTimestamp": ("2020-01-01T00:00:00Z", None),
    "generation": (-1, 0, 7),
}
_LABEL_SELECTORS: Final = ("app=x", "app!=x", "app in (x,y)", "app", "!app", "app=y,tier=1")
GENERATED: Final = "made-"


@dataclass(frozen=True, slots=True)
class Step:
    """A request with placeholders; a watch is sent after all other steps."""

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    body: Any = None
    accept: str = "application/json"
    content_type: str = "application/json"

    @property
    def is_watch(self) -> bool:
        """Whether the request starts a watch."""
        return "watch" in self.query


def script(seed: int, namespace: str) -> list[Step]:
    """Return the steps of a seed, in a namespace that exists and is empty."""
    chance = random.Random(seed)  # noqa: S311 - scripts are no secrets
    return list(_Author(chance, namespace).steps())


def ownership_script(seed: int, namespace: str) -> list[list[Step]]:
    """Return the phases of a seed: objects that own each other, a deletion for each phase, and the namespace's end.

    Between two phases, the garbage collector must do all that it can: its result depends on the order otherwise.
    """
    chance = random.Random(seed)  # noqa: S311 - scripts are no secrets
    objects: list[tuple[GVK, str]] = []
    creations = []
    for name in "abcdefg":
        gvk = chance.choice((THING, CONFIG_MAP))
        metadata: RawObject = {"name": name}
        owners = chance.sample(objects, min(len(objects), chance.choice((0, 1, 1, 2))))
        references = [_reference(*owner, chance) for owner in owners]
        if chance.random() < 0.2:
            references.append({**_reference(CONFIG_MAP, "a", chance), "uid": f"{UNKNOWN_UID[:-1]}{len(objects)}"})
        if references:
            metadata["ownerReferences"] = references
        if chance.random() < 0.15:
            metadata["finalizers"] = ["example.com/one"]
        body = {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata}
        creations.append(Step("POST", _collection(gvk, namespace), body=body))
        objects.append((gvk, name))
    deletions = []
    for gvk, name in chance.sample(objects, 3):
        options = {"propagationPolicy": chance.choice(("Background", "Foreground", "Foreground", "Orphan"))}
        deletions.append([Step("DELETE", f"{_collection(gvk, namespace)}/{name}", body=options)])
    return [creations, *deletions, [Step("DELETE", f"/api/v1/namespaces/{namespace}")]]


def _reference(gvk: GVK, name: str, chance: random.Random) -> RawObject:
    reference = {"apiVersion": gvk.api_version, "kind": gvk.kind, "name": name, "uid": f"$uid {gvk.kind} {name} -1"}
    return reference | ({"blockOwnerDeletion": True} if chance.random() < 0.5 else {})


def _collection(gvk: GVK, namespace: str) -> str:
    """Return the path of the objects of a kind."""
    scope = "" if gvk == GADGET else f"/namespaces/{namespace}"
    return f"{group_version_path(gvk.group, gvk.version)}{scope}/{plural_of(gvk.kind)}"


class _Author:
    """Writes a script."""

    def __init__(self, chance: random.Random, namespace: str) -> None:
        self._chance, self._namespace = chance, namespace
        self._kinds = [chance.choice(NAMESPACED), chance.choice((*NAMESPACED, GADGET))]
        self._generated = 0

    def steps(self) -> Iterator[Step]:
        writers = {
            self._create: 8,
            self._replace: 6,
            self._merge_patch: 6,
            self._json_patch: 4,
            self._delete: 4,
            self._delete_collection: 1,
        }
        readers = {self._get: 3, self._list: 6, self._watch: 2, self._odd: 3, self._elsewhere: 1}
        choices = writers | readers
        for _ in range(_STEPS):
            make = self._chance.choices(list(choices), list(choices.values()))[0]
            gvk = self._chance.choice(self._kinds)
            if gvk == POD:
                yield self._of_pod((self._merge_patch if make in (self._replace, self._json_patch) else make)(gvk))
                continue
            step = make(gvk)
            if make in writers and self._maybe(0.1):
                step = replace(step, query={**step.query, "dryRun": self._chance.choice(("All", "All", "Some"))})
            if make in writers and self._maybe(0.05):
                step = replace(step, accept=PARTIAL)
            yield step

    def _of_pod(self, step: Step) -> Step:
        """Return a step whose response has only the metadata of pods: most other fields have defaults."""
        is_collection = step.path.endswith("/pods") and step.method != "POST" and not step.is_watch
        body = step.body
        if step.method == "PATCH" and isinstance(body, dict):
            body = {key: value for key, value in body.items() if key != "spec"}
        return replace(step, accept=PARTIAL_LIST if is_collection else PARTIAL, body=body)

    def _elsewhere(self, gvk: GVK) -> Step:
        """Return a step with another namespace, which is created and deleted."""
        namespaces, name = "/api/v1/namespaces", f"{self._namespace}-other"
        path = f"{namespaces}/{name}"
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        inside = self._collection(gvk).replace(self._namespace, name)
        create = Step("POST", namespaces, body=namespace)
        return self._chance.choice(
            (
                create,
                create,
                Step("DELETE", path, body=self._delete_options()),
                Step("GET", path),
                Step("PUT", path, body={**namespace, "metadata": {"name": name, "labels": {"app": "x"}}}),
                Step("PATCH", f"{path}/status", body={"status": {"phase": "Active"}}, content_type=MERGE_PATCH),
                Step("POST", inside, body={**self._object(gvk, "a"), **self._content(gvk)}, accept=PARTIAL),
                Step("GET", inside, accept=PARTIAL_LIST),
                Step("GET", f"{inside}/a", accept=PARTIAL),
            )
        )

    def _maybe(self, probability: float) -> bool:
        return self._chance.random() < probability

    def _collection(self, gvk: GVK) -> str:
        return _collection(gvk, self._namespace)

    def _path(self, gvk: GVK, name: str = "", subresource: str = "") -> str:
        return "/".join(
            (self._collection(gvk), *(part for part in (name or self._chance.choice(_NAMES), subresource) if part))
        )

    def _object(self, gvk: GVK, name: str) -> RawObject:
        metadata: RawObject = {"name": name}
        if self._maybe(0.5):
            metadata["labels"] = self._labels()
        if self._maybe(0.3):
            metadata["finalizers"] = self._finalizers()
        if self._maybe(0.2) and gvk != GADGET:
            metadata["ownerReferences"] = self._owners()
        for field_name, values in _RARE_METADATA.items():
            if self._maybe(0.05):
                metadata[field_name] = self._chance.choice(values)
        if self._maybe(0.05):
            metadata["namespace"] = self._chance.choice((self._namespace, "other", ""))
        obj: RawObject = {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata, **self._content(gvk)}
        if self._maybe(0.2):
            obj["status"] = self._status()
        return obj

    def _labels(self) -> Any:
        labels = {"app": self._chance.choice(("x", "y", "z")), "tier": self._chance.choice(("1", "2"))}
        return self._chance.choice((labels, labels, labels, {"app": "x"}, {}, None, {"app": "-bad-"}, {"app": 1}))

    def _finalizers(self) -> Any:
        one, two = _FINALIZERS
        usual: list[Any] = [[one], [one], [two], [one, two]]
        return self._chance.choice(
            [*usual, [], None, ["noslash"], ["foregroundDeletion", "orphan"], "text", [one, one]]
        )

    def _owners(self) -> Any:
        owner = {"apiVersion": "v1", "kind": "Namespace", "name": self._namespace, "uid": UNKNOWN_UID}
        other = {**owner, "kind": "Other", "name": "o", "controller": True, "blockOwnerDeletion": False}
        bad = ([{"kind": "X"}], [other, {**other, "name": "p"}], [{**owner, "kind": "Event"}], ["text"])
        return self._chance.choice(([owner], [owner, other], [owner, owner], [], *bad))

    def _content(self, gvk: GVK) -> RawObject:
        """Return the fields beside the metadata and status; sometimes invalid ones."""
        number = self._chance.randint(1, 3)
        usual: RawObject = {"spec": {"size": number}}
        odd: list[RawObject] = [{"spec": {"size": number, "list": [1, {"x": None}]}}, {"spec": {}}, {}]
        odd += [{"spec": 5}, {"spec": None}, {"spec": []}, {"unknown": 1}]
        if gvk == CONFIG_MAP:
            usual = {"data": {"key": str(number)}}
            odd = [{"data": {"key": 1}}, {"data": {"bad/key": ""}}, {"data": None}, {"data": {}}, {"extra": 1}]
            odd.append({**usual, "immutable": True})
        elif gvk == SECRET:
            usual = {"data": {"key": self._chance.choice(("YQ==", "Yg=="))}}
            odd = [{"data": {"key": "!"}}, {"stringData": {"other": "c"}}, {"type": "example.com/own"}, {"data": {}}]
        elif gvk == LEASE:
            renewed = "2026-01-01T00:00:00.123456Z"
            usual = {"spec": {"holderIdentity": f"h{number}", "leaseDurationSeconds": 15, "renewTime": renewed}}
            specs: tuple[Any, ...] = (
                {},
                {"leaseDurationSeconds": 0},
                {"leaseTransitions": -1},
                {"holderIdentity": 1},
                None,
            )
            odd = [{"spec": spec} for spec in specs]
        elif gvk == EVENT:
            about = {"kind": "Thing", "name": "a", "namespace": self._namespace}
            usual = {"involvedObject": about, "reason": "Tested", "message": str(number), "count": number}
            odd = [{**usual, "involvedObject": {**about, "namespace": "other"}}, {**usual, "type": "Normal"}, {}]
        elif gvk == POD:
            usual = {"spec": {"containers": [{"name": "main", "image": "image"}], "nodeName": "node"}}
            odd = [{"spec": {"containers": [{"name": "main", "image": "image"}]}}]
        return self._chance.choice(odd) if self._maybe(0.25) else usual

    def _status(self) -> Any:
        return self._chance.choice(({"phase": "A"}, {"phase": "B"}, {"phase": "C", "n": 1}, {}, None, "text"))

    def _create(self, gvk: GVK) -> Step:
        name = self._chance.choice(_NAMES)
        obj = self._object(gvk, name)
        if self._maybe(0.15):
            self._generated += 1
            prefix = f"{GENERATED}{self._generated}-"
            obj["metadata"] |= {"name": self._chance.choice(("", "", name)), "generateName": prefix}
        if self._maybe(0.05):
            obj["metadata"]["name"] = self._chance.choice(("Upper", "under_score", "", "x" * 260, "a..b", "a/b"))
        if self._maybe(0.05):
            obj["metadata"]["resourceVersion"] = self._chance.choice(("0", "1", f"$version {gvk.kind} {name} -1"))
        if self._maybe(0.05):
            obj["metadata"]["uid"] = UNKNOWN_UID
        return Step("POST", self._collection(gvk), body=self._spoiled(obj))

    def _spoiled(self, obj: RawObject) -> Any:
        """Return an object that is sometimes not one."""
        if not self._maybe(0.06):
            return obj
        names = ("kind", "apiVersion", "metadata")
        without = [{key: value for key, value in obj.items() if key != name} for name in names]
        other: list[Any] = [
            {**obj, "kind": "Other"},
            {**obj, "apiVersion": "example.com/v9"},
            [],
            [obj],
            {},
            {**obj, "metadata": 5},
        ]
        return self._chance.choice([*without, *other])

    def _replace(self, gvk: GVK) -> Step:
        name = self._chance.choice(_NAMES)
        obj = self._object(gvk, name)
        self._refer(obj["metadata"], gvk, name, unconditional=0.15)
        if self._maybe(0.05):
            obj["metadata"]["name"] = self._chance.choice(("other", ""))
        subresource = "status" if self._maybe(0.3) else ""
        if subresource:
            obj["status"] = self._status()
        return Step("PUT", self._path(gvk, name, subresource), body=self._spoiled(obj))

    def _refer(self, metadata: RawObject, gvk: GVK, name: str, unconditional: float) -> None:
        """Add the version and uid that a write expects; sometimes an old or impossible one."""
        ages = ("-1", "-1", "-1", "-1", "-1", "-2", "0")
        if not self._maybe(unconditional):
            metadata["resourceVersion"] = f"$version {gvk.kind} {name} {self._chance.choice(ages)}"
        if self._maybe(0.03):
            metadata["resourceVersion"] = self._chance.choice(("text", "99999999999", "", None))
        if self._maybe(0.2):
            metadata["uid"] = self._chance.choice(
                (f"$uid {gvk.kind} {name} -1", f"$uid {gvk.kind} {name} 0", UNKNOWN_UID)
            )

    def _merge_patch(self, gvk: GVK) -> Step:
        name = self._chance.choice(_NAMES)
        patch: Any = {}
        if self._maybe(0.6):
            patch |= self._content(gvk)
        if self._maybe(0.3):
            patch["status"] = self._status()
        metadata: RawObject = {}
        if self._maybe(0.3):
            metadata["labels"] = self._chance.choice((self._labels(), {"app": None}, {"new": "label"}, None))
        if self._maybe(0.3):
            metadata["finalizers"] = self._chance.choice((self._finalizers(), None, []))
        if self._maybe(0.3):
            self._refer(metadata, gvk, name, unconditional=0.3)
        if self._maybe(0.05):
            metadata |= self._chance.choice(
                ({"name": "other"}, {"namespace": "other"}, {"creationTimestamp": None}, {"deletionTimestamp": None})
            )
        if self._maybe(0.05):
            metadata["deletionTimestamp"] = "2020-01-01T00:00:00Z"
        if metadata:
            patch["metadata"] = metadata
        if self._maybe(0.05):
            patch = self._chance.choice(([], {}, {"kind": "Other"}, {"metadata": None}, {"apiVersion": "v2"}))
        subresource = "status" if self._maybe(0.35) else ""
        return Step("PATCH", self._path(gvk, name, subresource), body=patch, content_type=MERGE_PATCH)

    def _json_patch(self, gvk: GVK) -> Step:
        name = self._chance.choice(_NAMES)
        field_name = {CONFIG_MAP: "data", SECRET: "data"}.get(gvk, "spec")
        operations: list[Any] = [
            {"op": "replace", "path": f"/{field_name}", "value": self._content(gvk).get(field_name, {})},
            {"op": "add", "path": f"/{field_name}/key", "value": self._chance.choice(("YQ==", "Yw=="))},
            {"op": "remove", "path": f"/{field_name}/key"},
            {"op": "add", "path": "/metadata/labels", "value": self._labels()},
            {"op": "replace", "path": "/metadata/labels/app", "value": "y"},
            {"op": "remove", "path": "/metadata/finalizers"},
            {"op": "add", "path": "/metadata/finalizers/-", "value": _FINALIZERS[0]},
            {"op": "add", "path": "/metadata/finalizers", "value": [_FINALIZERS[1]]},
            {"op": "remove", "path": "/metadata/finalizers/0"},
            {"op": "test", "path": "/metadata/name", "value": name},
            {"op": "test", "path": "/metadata/resourceVersion", "value": f"$version {gvk.kind} {name} -1"},
            {"op": "test", "path": "/metadata/uid", "value": f"$uid {gvk.kind} {name} -1"},
            {"op": "test", "path": "/metadata/missing", "value": None},
            {"op": "copy", "from": "/metadata/labels", "path": "/metadata/annotations"},
            {"op": "move", "from": f"/{field_name}", "path": "/status"},
            {"op": "add", "path": "/status", "value": {"phase": "P"}},
            {"op": "replace", "path": "/metadata/name", "value": "other"},
        ]
        odd = [
            {"op": "unknown", "path": "/spec"},
            {"op": "add"},
            {"op": "remove", "path": "spec"},
            "text",
            {"op": "add", "path": "/spec"},
        ]
        patch: Any = self._chance.sample(operations, self._chance.randint(1, 3))
        if self._maybe(0.1):
            patch.append(self._chance.choice(odd))
        if self._maybe(0.03):
            patch = {"op": "remove", "path": "/spec"}
        subresource = "status" if self._maybe(0.3) else ""
        return Step("PATCH", self._path(gvk, name, subresource), body=patch, content_type=JSON_PATCH)

    def _delete_options(self) -> RawObject | None:
        if self._maybe(0.4):
            return None
        options: RawObject = {
            "propagationPolicy": self._chance.choice(("Background",) * 6 + ("Foreground", "Orphan", "None"))
        }
        if self._maybe(0.1):
            options["gracePeriodSeconds"] = self._chance.choice((0, 5, -1))
        if self._maybe(0.05):
            options["dryRun"] = ["All"]
        if self._maybe(0.05):
            options = {"orphanDependents": self._chance.choice((True, False))}
        return options

    def _delete(self, gvk: GVK) -> Step:
        name = self._chance.choice(_NAMES)
        options = self._delete_options()
        if options is not None and self._maybe(0.4):
            expected: RawObject = {}
            self._refer(expected, gvk, name, unconditional=0.5)
            options["preconditions"] = expected
        query = {"propagationPolicy": "Foreground"} if options is None and self._maybe(0.1) else {}
        return Step("DELETE", self._path(gvk, name), query=query, body=options)

    def _delete_collection(self, gvk: GVK) -> Step:
        return Step("DELETE", self._collection(gvk), query=self._selectors(gvk), body=self._delete_options())

    def _selectors(self, gvk: GVK) -> dict[str, str]:
        query = {}
        if self._maybe(0.4):
            query["labelSelector"] = self._chance.choice(_LABEL_SELECTORS)
        if self._maybe(0.2):
            fields = (
                "metadata.name=a",
                "metadata.name!=a",
                f"metadata.namespace={self._namespace}",
                "metadata.name=a,metadata.name=b",
            )
            query["fieldSelector"] = self._chance.choice((*fields, "spec.size=1"))
        if gvk == SECRET and self._maybe(0.2):
            query["fieldSelector"] = "type=Opaque"
        return query

    def _get(self, gvk: GVK) -> Step:
        subresource = "status" if self._maybe(0.2) else ""
        query = {"resourceVersion": "0"} if self._maybe(0.2) else {}
        accept = PARTIAL if self._maybe(0.2) else "application/json"
        gvk = NEW_EVENT if gvk == EVENT and self._maybe(0.5) else gvk
        return Step("GET", self._path(gvk, "", subresource), query, accept=accept)

    def _list(self, gvk: GVK) -> Step:
        query = self._selectors(gvk)
        if self._maybe(0.5):
            query["limit"] = self._chance.choice(("1", "1", "2", "500"))
        if "limit" in query and self._maybe(0.4):
            query["continue"] = "$continue"
        elif self._maybe(0.2):
            query["resourceVersion"] = self._chance.choice(("0", f"$version {gvk.kind} a -1", "text", "999999999"))
            if self._maybe(0.5):
                query["resourceVersionMatch"] = self._chance.choice(("Exact", "NotOlderThan", "Other"))
        accept = PARTIAL_LIST if self._maybe(0.2) else "application/json"
        gvk = NEW_EVENT if gvk == EVENT and self._maybe(0.3) else gvk
        path = self._path(gvk) if self._maybe(0.02) else self._collection(gvk)
        return Step("GET", path, query, accept=accept)

    def _watch(self, gvk: GVK) -> Step:
        age = self._chance.choice(("0", "0", "1", "2"))
        name = self._chance.choice(_NAMES)
        query = {**self._selectors(gvk), "watch": "true", "resourceVersion": f"$version {gvk.kind} {name} {age}"}
        accept = PARTIAL if self._maybe(0.3) else "application/json"
        gvk = NEW_EVENT if gvk == EVENT and self._maybe(0.3) else gvk
        return Step("GET", self._collection(gvk), query, accept=accept)

    def _odd(self, gvk: GVK) -> Step:
        collection, path = self._collection(gvk), self._path(gvk)
        obj = self._object(gvk, "a")
        return self._chance.choice(
            (
                Step("GET", f"/apis/{THING.group}/v9/things"),
                Step("GET", f"/apis/{THING.group}/{THING.version}/unknowns"),
                Step("GET", "/apis/unknown.example.com/v1/things"),
                Step("GET", f"{path}/unknown"),
                Step("POST", path, body=obj),
                Step("PUT", collection, body=obj),
                Step("PATCH", collection, body={}, content_type=MERGE_PATCH),
                Step("PATCH", path, body={}, content_type="application/json"),
                Step("PATCH", path, body={}, content_type="text/plain"),
                Step("POST", collection, body=obj, content_type="text/plain"),
                Step("GET", path, accept="text/plain"),
                Step("GET", collection, accept=PARTIAL),
                Step("GET", path, accept=PARTIAL_LIST),
                Step("GET", path, accept=f"{PARTIAL},application/json"),
                Step("GET", path, accept="application/xml,*/*"),
                Step("GET", collection, {"labelSelector": "a in ("}),
                Step("GET", collection, {"fieldSelector": "metadata.name"}),
                Step("GET", collection, {"limit": "1", "continue": "text"}),
                Step("POST", collection.replace(self._namespace, f"{self._namespace}-missing"), body=obj),
                Step("GET", collection.replace(self._namespace, f"{self._namespace}-missing")),
                Step("DELETE", f"{collection}/missing"),
                Step("DELETE", path, {"dryRun": "All"}),
                Step("DELETE", f"{path}/status"),
                Step("POST", f"{path}/status", body=obj),
            )
        )

"""The users of a history about prune: they edit primaries, and do with the objects of roles what users do.

All requests of users are carried out at once, and without faults.
"""

import json
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from rolecall.kube.client import MERGE_PATCH
from rolecall.kube.metadata import annotation_of, uid_of
from rolecall.kube.references import RawObject
from rolecall.runner.prune.inventory import INVENTORY_ANNOTATION, Inventory
from tests.simulation.cluster import Answer, ServedKind
from tests.simulation.kinds import THING
from tests.simulation.pruning.kinds import (
    DEPLOYMENT,
    ELSEWHERE,
    ENDPOINTS,
    MADE,
    PRIMARIES,
    STATEFUL_SET,
    USER,
    collection,
    content,
    path_of,
    ready_status,
)
from tests.simulation.pruning.oracle import Confirmation, Made
from tests.simulation.pruning.roles import (
    ADOPT,
    APPLY_PATCH,
    GATE_KINDS,
    HELM,
    LABEL,
    LAST_APPLIED,
    PRUNE,
    Gate,
    Item,
    Way,
    gate_path,
)
from tests.simulation.runs import NAMESPACE

if TYPE_CHECKING:
    from tests.simulation.pruning.history import PruningHistory

NAMES: Final = ("a", "b")
OPTIONS: Final = ("o1", "o2", "o3")
CONFIRM: Final = "rolecall.dev/confirm-prune"
MADE_FOR: Final = "rolecall.dev/made-for"
PAUSED: Final = "rolecall.dev/paused"
REQUESTED: Final = "rolecall.dev/reconcile-requested-at"
_OF_SERVER: Final = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")
_STRANGE: Final = ("..", ".", "a/../b", "%2e%2e", "kube-system")
_NAMESPACES: Final = tuple(f"/api/v1/namespaces/{name}" for name in (NAMESPACE, ELSEWHERE, "default"))
_AT_ONCE: Final = 0.5
_OFF: Final = 0.6
_PAUSED_SECONDS: Final = 30.0
_INTERFERENCE: Final = 0.03
_OUTSIDE_SHARE: Final = 0.5
"""An outside gate is closed for less than this share of the time of the task: nothing shows that it is closed."""


class PruningUser:
    """Several people with kubectl; every draw comes from ``chance``."""

    def __init__(self, history: "PruningHistory", chance: random.Random) -> None:
        self._history, self._server, self._chance = history, history.server, chance
        self._requests = 0
        self._saved: list[RawObject] = []
        self._digests: list[str] = []
        self.interferes = chance.random() < 0.5
        self._unready: set[str] = set()

    def edits(self) -> dict[Callable[[], object], float]:
        """Return the edits of primaries, with weights."""
        return {self.toggle_option: 10, self.edit: 4, self.change_ways: 4, self.edit_and_close: 3}

    def steps(self) -> dict[Callable[[], object], float]:
        """Return what else users do, with weights."""
        return {
            self.create: 4,
            self.delete_primary: 1,
            self.recreate: 1,
            self.restore_primary: 1,
            self.label_primary: 2,
            self.request: 3,
            self.pause: 1,
            self.toggle_gate: 6,
            self.close_outside: 3,
            self.toggle_readiness: 2,
            self.opt_out: 3,
            self.allow_again: 1,
            self.adopt: 2,
            self.share: 2,
            self.use: 4,
            self.apply: 3,
            self.apply_on_server: 2,
            self.label_object: 2,
            self.delete_object: 2,
            self.replace_object: 2,
            self.clone: 3,
            self.save_object: 2,
            self.restore_object: 3,
            self.make_before: 2,
            self.forge_inventory: 4,
            self.lose_inventory: 1,
            self.forge_mark: 2,
            self.confirm: 5,
            self.confirm_wrongly: 2,
        }

    def begin(self) -> None:
        """Create the namespaces, what roles wait for, and the first primaries."""
        self.prepare(ready_share=0.85)
        self.write_primary(THING, "a", self._spec(THING))
        for _ in range(self._chance.randint(0, 2)):
            self.create()

    def prepare(self, ready_share: float = 1.0) -> None:
        """Create the namespaces, and what roles wait for, most of it ready."""
        for name in (NAMESPACE, ELSEWHERE):
            self._post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for gate, kind in GATE_KINDS.items():
            gvk = kind.gvk
            metadata = {"name": f"gate-{gate}", "namespace": NAMESPACE}
            body = {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata}
            self._post(collection(kind, NAMESPACE), body | (content(kind, 1) if kind is not ENDPOINTS else {}))
            self.set_gate(gate, is_open=self._chance.random() < ready_share)

    # Primaries.

    def create(self) -> None:
        """Create a primary."""
        kinds = list(self._history.models.values())
        kind, name = self._chance.choice(kinds).kind, self._chance.choice(NAMES)
        self.write_primary(kind, name, self._spec(kind))

    def write_primary(self, kind: ServedKind, name: str, spec: RawObject) -> None:
        """Create a primary with a spec."""
        gvk, metadata = kind.gvk, {"name": name} | ({"namespace": NAMESPACE} if kind.is_namespaced else {})
        body = {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata, "spec": spec}
        if self._post(collection(kind, NAMESPACE), body).status == 201:
            self._tell(f"creates {gvk.kind} {name}: {spec}")

    def _spec(self, kind: Any) -> RawObject:
        options = [each for each in OPTIONS if self._chance.random() < 0.7]
        spec: RawObject = {"options": options, "size": self._chance.randint(1, 9)}
        if self._chance.random() < 0.2:
            spec |= {"ways": self._ways(kind)}
        if kind is USER:
            spec["uses"] = self._uses()
        return spec

    def _ways(self, kind: Any) -> dict[str, str]:
        items = self._history.models[kind.gvk.kind].items
        chosen = self._chance.sample(items, min(len(items), self._chance.randint(0, 2)))
        return {each.suffix: str(self._chance.choice(tuple(Way))) for each in chosen}

    def _uses(self) -> list[str]:
        living = [made.path for made in self._living()]
        return self._chance.sample(living, min(len(living), self._chance.randint(0, 2)))

    def _primary(self) -> RawObject | None:
        """Return a primary that exists."""
        kinds = (THING, *PRIMARIES)  # most users of the first
        found = [obj for kind in kinds for obj in self._server.objects(kind.gvk)]
        return self._chance.choice(found) if found else None

    def _path(self, obj: RawObject) -> str:
        kind = next(kind for kind in (*PRIMARIES, *MADE) if kind.gvk.kind == obj["kind"])
        return path_of(kind, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])

    def write_spec(self, obj: RawObject, spec: RawObject) -> None:
        """Replace the spec of a primary."""
        old = obj.get("spec") or {}
        patch: RawObject = dict.fromkeys(sorted(old.keys() - spec.keys())) | spec
        if "ways" in old and "ways" in spec:
            patch["ways"] = dict.fromkeys(sorted(old["ways"].keys() - spec["ways"].keys())) | spec["ways"]
        self._patch(self._path(obj), {"spec": patch})
        self._tell(f"writes {obj['kind']} {obj['metadata']['name']}: {spec}")

    def edit(self) -> None:
        """Give a primary another spec."""
        if (obj := self._primary()) is not None:
            kind = next(kind for kind in PRIMARIES if kind.gvk.kind == obj["kind"])
            self.write_spec(obj, self._spec(kind))

    def toggle_option(self) -> None:
        """Switch one option of a primary, more often off than on."""
        if (obj := self._primary()) is not None:
            items = self._history.models[obj["kind"]].items
            options = set(obj["spec"].get("options") or ())
            known = sorted({item.option for item in items if item.option})
            on = [each for each in known if each in options]
            option = self._chance.choice(on if on and self._chance.random() < _OFF else known or OPTIONS)
            self.write_spec(obj, {**obj["spec"], "options": sorted(options ^ {option})})

    def change_ways(self) -> None:
        """Let a primary request the same items in other ways."""
        if (obj := self._primary()) is not None:
            kind = next(kind for kind in PRIMARIES if kind.gvk.kind == obj["kind"])
            fails = {"fails": True} if self._chance.random() < 0.2 else {}
            self.write_spec(obj, {**obj["spec"], "ways": self._ways(kind)} | fails)

    def delete_primary(self) -> None:
        """Delete a primary, sometimes without its objects."""
        if (obj := self._primary()) is not None:
            self._delete_primary(obj, orphans=self._chance.random() < 0.5)

    def _delete_primary(self, obj: RawObject, *, orphans: bool) -> None:
        options = {"propagationPolicy": "Orphan" if orphans else "Background"}
        self._server.handle("DELETE", self._path(obj), body=options)
        self._tell(f"deletes {obj['kind']} {obj['metadata']['name']}, {options['propagationPolicy']}")

    def recreate(self) -> None:
        """Delete a primary without its objects, and create it again."""
        if (obj := self._primary()) is not None:
            self._delete_primary(obj, orphans=True)
            self._history.settle()
            kind = next(kind for kind in PRIMARIES if kind.gvk.kind == obj["kind"])
            self.write_primary(kind, obj["metadata"]["name"], obj["spec"])

    def restore_primary(self) -> None:
        """Restore a primary from a backup, with all annotations and a new uid."""
        if (obj := self._primary()) is None:
            return
        self._delete_primary(obj, orphans=self._chance.random() < 0.7)
        self._history.settle()
        self.restore(obj)

    def restore(self, obj: RawObject) -> None:
        """Create an object as a backup has it."""
        metadata = {name: value for name, value in obj["metadata"].items() if name not in _OF_SERVER}
        body = {**{name: value for name, value in obj.items() if name != "status"}, "metadata": metadata}
        if self._post(self._path(obj).rpartition("/")[0], body).status == 201:
            self._tell(f"restores {obj['kind']} {metadata['name']}")

    def label_primary(self) -> None:
        """Change what isn't the spec of a primary."""
        if (obj := self._primary()) is not None:
            value = str(self._chance.randint(1, 9))
            self._annotate(self._path(obj), {"example.com/note": value}, labels={LABEL: value})
            self._tell(f"labels {obj['kind']} {obj['metadata']['name']}")

    def request(self) -> None:
        """Request a reconcile."""
        if (obj := self._primary()) is not None:
            self._requests += 1
            self._annotate(self._path(obj), {REQUESTED: str(self._requests)})

    def pause(self) -> None:
        """Pause a primary for a while."""
        if (obj := self._primary()) is not None:
            path = self._path(obj)
            self._annotate(path, {PAUSED: "true"})
            self._history.later(_PAUSED_SECONDS, lambda: self._annotate(path, {PAUSED: None}))
            self._tell(f"pauses {obj['kind']} {obj['metadata']['name']}")

    # Gates.

    def toggle_gate(self, gate: Gate = Gate.NONE) -> None:
        """Let what roles wait for become ready, or no longer ready."""
        gate = gate or self._chance.choice(tuple(GATE_KINDS))
        self.set_gate(gate, is_open=gate not in self._history.open_gates)

    def set_gate(self, gate: Gate, *, is_open: bool) -> None:
        """Open or close a gate of the cluster."""
        (self._history.open_gates.add if is_open else self._history.open_gates.discard)(gate)
        path, truth = gate_path(gate), "True" if is_open else "False"
        self._tell(f"{'opens' if is_open else 'closes'} the gate {gate}")
        if gate == Gate.ENDPOINTS:
            addresses = {"addresses" if is_open else "notReadyAddresses": [{"ip": "10.0.0.1"}]}
            self._patch(path, {"subsets": [addresses] if is_open or self._chance.random() < 0.5 else None})
            return
        generation = self._server.handle("GET", path).body["metadata"].get("generation")
        match gate:
            case Gate.PHASE:
                status: RawObject = {"phase": "Running" if is_open else self._chance.choice(("Creating", "Pending"))}
            case Gate.PROGRESSING:
                status = {"conditions": [{"type": "Progressing", "status": "False" if is_open else "True"}]}
            case Gate.AVAILABLE:
                status = {"conditions": [{"type": "Available", "status": truth}]}
            case _:
                status = ready_status(GATE_KINDS[gate], generation, is_ready=is_open)
        self._patch(f"{path}/status", {"status": status})

    def edit_and_close(self) -> None:
        """Edit a primary, whose gates close for a while: a database restarts with another size."""
        gate = self._chance.choice(tuple(GATE_KINDS))
        if gate in self._history.open_gates:
            self.set_gate(gate, is_open=False)
            self._history.later(self._chance.choice((5.0, 40.0, 150.0)), lambda: self.set_gate(gate, is_open=True))
        (self.edit if self._chance.random() < 0.5 else self.request)()

    def close_outside(self) -> None:
        """Close what roles wait for outside the cluster, for less than the time of the task."""
        if self._history.is_outside_open:
            after = min(model.after_seconds for model in self._history.models.values())
            self._history.is_outside_open = False
            self._history.later(after * self._chance.uniform(0.1, _OUTSIDE_SHARE), self.open_outside)
            self._tell("closes the gate outside")
            if self._chance.random() < 0.5:
                self.edit()

    def open_outside(self) -> None:
        """Open what roles wait for outside the cluster."""
        self._history.is_outside_open = True

    def toggle_readiness(self) -> None:
        """Let a workload fail, or recover; its controller gives the same status to each of its versions."""
        workloads = [made for made in self._living() if made.kind in (DEPLOYMENT, STATEFUL_SET)]
        if workloads:
            self._unready ^= {self._chance.choice(workloads).path}
            self.control()

    def fail_forever(self, path: str) -> None:
        """Let a workload never be ready again."""
        self._unready.add(path)
        self.control()

    def control(self) -> None:
        """Give each workload the status of its newest version, as its controller does."""
        for made in self._history.truth.living.values():
            if made.kind.has_status and made.kind.gvk.group in ("apps", "batch") and made.kind.gvk.kind != "CronJob":
                generation = made.obj["metadata"].get("generation")
                status = ready_status(made.kind, generation, is_ready=made.path not in self._unready)
                if made.obj.get("status") != status:
                    self._patch(f"{made.path}/status", {"status": status})

    # Objects of roles.

    def _living(self, *, gates: bool = False) -> list[Made]:
        living = self._history.truth.living
        found = [living[path] for path in sorted(living) if path not in _NAMESPACES]
        return [made for made in found if gates or "/gate-" not in made.path]

    def _object(self) -> Made | None:
        """Return an object of a role, most often one that is no longer needed."""
        found = self._living()
        return self._chance.choice(found) if found else None

    def interfere(self, path: str) -> None:
        """Change an object between the read and the write of a run, sometimes."""
        made = self._history.truth.living.get(path)
        if self.interferes and made is not None and "/gate-" not in path and self._chance.random() < _INTERFERENCE:
            self._chance.choice((self.opt_out, self.share, self.apply, self.adopt))(made)

    def opt_out(self, made: Made | None = None) -> None:
        """Keep an object."""
        if (made := made or self._object()) is not None:
            self._annotate(made.path, {PRUNE: "false"})
            self._tell(f"keeps {made.path}")

    def allow_again(self) -> None:
        """Take back an opt-out."""
        if kept := [made for made in self._living() if made.is_kept]:
            made = self._chance.choice(kept)
            self._annotate(made.path, {PRUNE: None})
            self._tell(f"no longer keeps {made.path}")

    def adopt(self, made: Made | None = None) -> None:
        """Mark an object as adopted, or as one of a Helm release."""
        if (made := made or self._object()) is not None:
            if self._chance.random() < 0.7:
                self._annotate(made.path, {ADOPT: "true"})
            else:
                self._annotate(made.path, {}, labels={HELM: "Helm"})
            self._tell(f"adopts {made.path}")

    def share(self, made: Made | None = None) -> None:
        """Give an object a second owner."""
        made = made or self._object()
        others = [each for each in self._living(gates=True) if "/gate-" in each.path]
        if made is None or not others:
            return
        owner = self._chance.choice(others).obj
        reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
        reference |= {"name": owner["metadata"]["name"], "uid": uid_of(owner)}
        references = made.obj["metadata"].get("ownerReferences") or []
        self._patch(made.path, {"metadata": {"ownerReferences": [*references, reference]}})
        self._tell(f"adds an owner to {made.path}")

    def use(self) -> None:
        """Let a primary of another kind use objects by their names."""
        if visitors := self._server.objects(USER.gvk):
            obj = self._chance.choice(visitors)
            self.write_spec(obj, {**obj["spec"], "uses": self._uses()})

    def apply(self, made: Made | None = None, *, keeps: bool = False) -> None:
        """Apply an object with kubectl, which notes what it has applied."""
        if (made := made or self._object()) is None:
            return
        keeps |= self._chance.random() < 0.5
        annotations = {PRUNE: "false"} if keeps else {"example.com/team": "blue"}
        gvk, metadata = made.kind.gvk, {"name": made.obj["metadata"]["name"], "annotations": annotations}
        definition = {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata}
        self._annotate(made.path, {**annotations, LAST_APPLIED: json.dumps(definition, sort_keys=True)})
        self._tell(f"applies {made.path}: {annotations}")

    def apply_on_server(self) -> None:
        """Apply an object on the server side; this creates it if it doesn't exist."""
        if (made := self._object()) is None:
            return
        gvk, metadata = made.kind.gvk, {"name": made.obj["metadata"]["name"]}
        metadata |= {"annotations": self._chance.choice(({PRUNE: "false"}, {"example.com/team": "red"}))}
        body = {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata, **content(made.kind, 1)}
        query = {"fieldManager": "kubectl", "force": "true"}
        self._server.handle("PATCH", made.path, query, body, content_type=APPLY_PATCH)
        self._tell(f"applies {made.path} on the server side")

    def label_object(self, made: Made | None = None) -> None:
        """Change an object outside its status."""
        if (made := made or self._object()) is not None:
            self._annotate(made.path, {"example.com/seen": str(self._chance.randint(1, 99))})
            self._tell(f"annotates {made.path}")

    def delete_object(self) -> None:
        """Delete an object."""
        if (made := self._object()) is not None:
            self._server.handle("DELETE", made.path)
            self._tell(f"deletes {made.path}")

    def replace_object(self) -> None:
        """Delete an object, and create one of that name."""
        if (made := self._object()) is None:
            return
        self._server.handle("DELETE", made.path)
        gvk, metadata = made.kind.gvk, {"name": made.obj["metadata"]["name"]}
        body = {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata, **content(made.kind, 1)}
        self._post(made.path.rpartition("/")[0], body)
        self._tell(f"replaces {made.path}")

    def clone(self) -> None:
        """Copy an object with all annotations: under another name, into another namespace, or to another kind."""
        if (made := self._object()) is None:
            return
        kind, namespace, name = made.kind, made.obj["metadata"].get("namespace", ""), made.obj["metadata"]["name"]
        match self._chance.choice(("name", "namespace", "kind")):
            case "name":
                names = [each.name(primary) for each in self._items() for primary in NAMES if each.kind is kind]
                name = self._chance.choice(names or [f"{name}-copy"])
            case "namespace" if namespace:
                namespace = ELSEWHERE if namespace == NAMESPACE else NAMESPACE
            case _:
                kind = self._chance.choice([each.kind for each in self._items()])
                namespace = (namespace or NAMESPACE) if kind.is_namespaced else ""
        self._copy(made, kind, namespace, name)

    def copy(self, path: str, name: str) -> None:
        """Copy an object under another name, with all annotations and owners."""
        made = self._history.truth.living[path]
        self._copy(made, made.kind, made.obj["metadata"].get("namespace", ""), name)

    def _copy(self, made: Made, kind: ServedKind, namespace: str, name: str) -> None:
        metadata = {each: value for each, value in made.obj["metadata"].items() if each not in _OF_SERVER}
        metadata |= {"name": name} | ({"namespace": namespace} if namespace else {})
        if not namespace:
            metadata.pop("namespace", None)
        body = {"apiVersion": kind.gvk.api_version, "kind": kind.gvk.kind, "metadata": metadata}
        if self._post(collection(kind, namespace), body | content(kind, 1)).status == 201:
            self._tell(f"copies {made.path} to {path_of(kind, namespace, name)}")

    def _items(self) -> list[Any]:
        return [item for model in self._history.models.values() for item in model.items]

    def save_object(self) -> None:
        """Back up an object."""
        if (made := self._object()) is not None:
            self._saved.append(made.obj)

    def restore_object(self) -> None:
        """Restore an object from a backup, after it was deleted."""
        if self._chance.random() < _AT_ONCE:
            self.save_object()
        if self._saved:
            obj = self._saved.pop(self._chance.randrange(len(self._saved)))
            self._server.handle("DELETE", self._path(obj))
            self.restore(obj)

    def restore_at_once(self, made: Made) -> None:
        """Delete an object, and restore it as it was."""
        self._server.handle("DELETE", made.path)
        self.restore(made.obj)

    def delete_at(self, path: str) -> None:
        """Delete the object of a path."""
        self._server.handle("DELETE", path)

    def make_owned(self, item: Item, primary: RawObject) -> None:
        """Create an item of a primary, with its owner, before a run does."""
        metadata = primary["metadata"]
        body = item.body(metadata["name"], 1)
        reference = {"apiVersion": primary["apiVersion"], "kind": primary["kind"]}
        body["metadata"]["ownerReferences"] = [reference | {"name": metadata["name"], "uid": metadata["uid"]}]
        self._post(item.path(metadata["name"]).rpartition("/")[0], body)

    def annotate_primary(self, obj: RawObject, annotations: RawObject, labels: RawObject | None = None) -> None:
        """Change annotations and labels of a primary."""
        self._annotate(self._path(obj), annotations, labels)
        self._tell(f"annotates {obj['kind']} {obj['metadata']['name']}: {annotations} {labels or ''}")

    def make_before(self) -> None:
        """Create an object with a name that a role uses, sometimes with its owner."""
        missing = [
            (item, name)
            for item in self._items()
            for name in NAMES
            if item.path(name) not in self._history.truth.living
        ]
        if not missing:
            return
        item, name = self._chance.choice(missing)
        body = item.body(name, 1)
        primaries = [each for each in self._history.truth.primaries.values() if each.name == name]
        if primaries and self._chance.random() < 0.5:
            primary = self._chance.choice(primaries)
            reference = {"apiVersion": "example.com/v1", "kind": primary.kind, "name": name, "uid": primary.uid}
            body["metadata"]["ownerReferences"] = [reference]
        if self._post(item.path(name).rpartition("/")[0], body).status == 201:
            self._tell(f"creates {item.path(name)}")

    # The operator's notes.

    def forge_inventory(self) -> None:
        """Change an inventory: entries of others, other names and times."""
        if (obj := self._primary()) is None or (text := annotation_of(obj, INVENTORY_ANNOTATION)) is None:
            return
        found = json.loads(text)
        rows: list[list[Any]] = found.get("objects") or []
        if not rows:
            return
        for _ in range(self._chance.randint(1, 3)):
            row = self._forged(list(self._chance.choice(rows)))
            if self._chance.random() < 0.8:
                row[7] = self._chance.choice((1, 1_700_000_000, int(self._history.wall()) - 86_400))
            if self._chance.random() < 0.3:
                rows[self._chance.randrange(len(rows))] = row
            else:
                rows.append(row)
        self._annotate(self._path(obj), {INVENTORY_ANNOTATION: json.dumps(found, separators=(",", ":"))})
        self._history.truth.forged.add(uid_of(obj))
        self._tell(f"forges the inventory of {obj['kind']} {obj['metadata']['name']}: {found}")

    def _forged(self, row: list[Any]) -> list[Any]:
        """Return an entry with another object, or with something that isn't its own."""
        other = self._object()
        gates = [made for made in self._living(gates=True) if "/gate-" in made.path]
        kind = self._chance.choice(("object", "object", "gate", "name", "plural", "kind", "uid", "namespace", "time"))
        if kind == "object" and other is not None:
            return self._row_of(other, row)
        if kind == "gate":
            return self._row_of(self._chance.choice(gates), row)
        if kind == "uid" and other is not None:
            row[6] = uid_of(other.obj)
        forged: dict[str, tuple[int, tuple[str, ...]]] = {
            "name": (3, _STRANGE),
            "plural": (1, ("configmaps", "secrets", "deployment", "..", "things")),
            "kind": (5, tuple(kind.gvk.kind for kind in MADE)),
            "namespace": (2, (ELSEWHERE, "", "..")),
        }
        if kind in forged:
            index, values = forged[kind]
            row[index] = self._chance.choice(values)
        return row

    @staticmethod
    def _row_of(made: Made, row: list[Any]) -> list[Any]:
        gvk, metadata = made.kind.gvk, made.obj["metadata"]
        identity = [gvk.group, made.kind.name, metadata.get("namespace", ""), metadata["name"]]
        return [*identity, gvk.version, gvk.kind, metadata["uid"], *row[7:]]

    def lose_inventory(self) -> None:
        """Remove an inventory."""
        if (obj := self._primary()) is not None:
            self._annotate(self._path(obj), {INVENTORY_ANNOTATION: None})
            self._tell(f"removes the inventory of {obj['kind']} {obj['metadata']['name']}")

    def forge_mark(self) -> None:
        """Give an object the mark of another one."""
        marks = [mark for made in self._living() if (mark := annotation_of(made.obj, MADE_FOR))]
        made = self._object()
        if marks and made is not None:
            mark = self._chance.choice(marks)
            if annotation_of(made.obj, MADE_FOR) != mark:
                self._annotate(made.path, {MADE_FOR: mark})
                self._tell(f"gives {made.path} the mark {mark}")

    def confirm(self) -> None:
        """Confirm what the operator proposes."""
        if (obj := self._primary()) is None:
            return
        inventory = Inventory.of(obj)
        if digest := getattr(inventory, "confirm", ""):
            primary = self._history.truth.primaries[uid_of(obj)]
            uids = frozenset(each.uid for each in inventory.obsolete)
            state = self._history.models[primary.kind].state
            self._history.truth.confirmed.append(Confirmation(primary.uid, uids, obj["spec"], state))
            self._digests.append(digest)
            self._annotate(self._path(obj), {CONFIRM: digest})
            self._tell(f"confirms {digest} of {obj['kind']} {obj['metadata']['name']}")

    def confirm_wrongly(self) -> None:
        """Confirm what the operator doesn't propose, or no longer."""
        if (obj := self._primary()) is not None:
            digest = self._chance.choice([*self._digests, "0123456789abcdef", "confirm"])
            if digest != getattr(Inventory.of(obj), "confirm", ""):
                self._annotate(self._path(obj), {CONFIRM: digest})
                self._tell(f"confirms {digest} of {obj['kind']} {obj['metadata']['name']} wrongly")

    def _annotate(self, path: str, annotations: RawObject, labels: RawObject | None = None) -> None:
        metadata = ({"annotations": annotations} if annotations else {}) | ({"labels": labels} if labels else {})
        self._patch(path, {"metadata": metadata})

    def _patch(self, path: str, body: RawObject) -> Answer:
        return self._server.handle("PATCH", path, body=body, content_type=MERGE_PATCH)

    def _post(self, path: str, body: RawObject) -> Answer:
        return self._server.handle("POST", path, body=body)

    def _tell(self, text: str) -> None:
        self._history.tell(f"user {text}")

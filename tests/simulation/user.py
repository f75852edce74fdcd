"""The user of a history: changes Things and what belongs to them, and knows what must become of these.

All requests of the user are carried out at once, and without faults.
"""

import copy
import random
from collections.abc import Callable
from typing import Final

from rolecall.kube.client import MERGE_PATCH
from rolecall.kube.references import RawObject
from tests.simulation.cluster import Answer, SimulatedApiServer
from tests.simulation.runs import CONFIG_MAPS, GATE, NAMESPACE, SETTINGS

THINGS: Final = f"/apis/example.com/v1/namespaces/{NAMESPACE}/things"
SELECTED: Final = {"app": "simulated"}
PAUSED: Final = "rolecall.dev/paused"
REQUESTED: Final = "rolecall.dev/reconcile-requested-at"

NAMES: Final = ("a", "b", "c")
PARTS: Final = ("x", "y")


class User:
    """What a user has written; every draw comes from ``chance``."""

    def __init__(self, server: SimulatedApiServer, chance: random.Random, tell: Callable[[str], None]) -> None:
        self._server, self._chance, self._tell = server, chance, tell
        self.wanted: dict[str, RawObject | None] = {}
        """The spec of each Thing; None after it was deleted."""

        self.made: set[str] = set()
        """The uids of objects that the user has created with the names of parts."""

        self.settings_value = ""
        self._gate_is_open = True
        self._paused: set[str] = set()
        self._unselected: set[str] = set()
        self._requests = 0

    @property
    def living(self) -> dict[str, RawObject]:
        """The specs of the Things that weren't deleted."""
        return {name: spec for name, spec in self.wanted.items() if spec is not None}

    def saved(self) -> Callable[[], None]:
        """Return a function that restores what the user has written until now, when the cluster is restored."""
        state = copy.deepcopy((self.wanted, self.settings_value, self._gate_is_open, self._paused, self._unselected))

        def restore() -> None:
            self.wanted, self.settings_value, self._gate_is_open, self._paused, self._unselected = state

        return restore

    def begin(self) -> None:
        """Create the namespace, and what roles read."""
        self._server.handle("POST", "/api/v1/namespaces", body=_named("v1", "Namespace", NAMESPACE))
        self.set_settings()
        self._open_gate(is_open=True)

    def end(self) -> None:
        """Let every Thing reach its state: open the gate, resume, and give back the labels."""
        self._open_gate(is_open=True)
        for name in sorted(self._paused):
            self._annotate(name, {PAUSED: None})
        for name in sorted(self._unselected):
            self._label(name, SELECTED)
        self._paused.clear()
        self._unselected.clear()

    def change(self, name: str = "") -> None:
        """Create a Thing, or change its spec: the one with a name, or any."""
        name, size = name or self._chance.choice(NAMES), self._chance.randint(1, 99)
        old = self.wanted.get(name)
        spec: RawObject = {"size": size}
        if self._chance.random() < 0.4:
            spec["parts"] = [part for part in PARTS if self._chance.random() < 0.6]
        if self._chance.random() < 0.3:
            spec["copies"] = True
        if self._chance.random() < 0.15:
            spec["needsGate"] = True
        if self._chance.random() < 0.15:
            spec["seconds"] = self._chance.choice((1, 8, 30))
        if self._chance.random() < 0.1:
            spec["counts"] = self._chance.randint(1, 3)
        if self._chance.random() < 0.1:
            spec["rehearses"] = self._chance.choice(("query", "body"))
        self.write_spec(name, spec, is_new=old is None)

    def write_spec(self, name: str, spec: RawObject, *, is_new: bool) -> None:
        """Create a Thing with a spec, or replace the spec of one."""
        if is_new:
            body = _named("example.com/v1", "Thing", name, NAMESPACE) | {"spec": spec}
            body["metadata"]["labels"] = SELECTED
            answer = self._server.handle("POST", THINGS, body=body)
            if answer.status == 409:  # its finalizer hasn't run
                return
        else:
            removed = dict.fromkeys((self.wanted[name] or {}).keys() - spec.keys())
            patch = {"spec": spec | dict(sorted(removed.items()))}
            answer = self._patch(f"{THINGS}/{name}", patch)
        assert answer.status in (200, 201), answer
        self.wanted[name] = spec
        self._tell(f"user writes {name}: {spec}")
        if is_new:
            self._paused.discard(name)
            self._unselected.discard(name)

    def delete(self) -> None:
        """Delete a Thing."""
        name = self._chance.choice(NAMES)
        if self.wanted.get(name) is not None:
            self._server.handle("DELETE", f"{THINGS}/{name}")
            self.wanted[name] = None
            self._paused.discard(name)
            self._tell(f"user deletes {name}")

    def recreate(self) -> None:
        """Delete a Thing, and create one of its name before anything notices."""
        name = self._chance.choice(NAMES)
        if (spec := self.wanted.get(name)) is not None:
            self._server.handle("DELETE", f"{THINGS}/{name}")
            self.wanted[name] = None
            self.write_spec(name, spec, is_new=True)

    def set_settings(self) -> None:
        """Change what roles copy."""
        self.settings_value = f"v{self._chance.randint(1, 99)}"
        body = _named("v1", "ConfigMap", SETTINGS, NAMESPACE) | {"data": {"value": self.settings_value}}
        if self._server.handle("POST", CONFIG_MAPS, body=body).status == 409:
            self._patch(f"{CONFIG_MAPS}/{SETTINGS}", {"data": body["data"]})
        self._tell(f"user sets the settings to {self.settings_value}")

    def delete_dependent(self) -> None:
        """Delete what a run has made."""
        name = self._chance.choice(NAMES)
        if self._server.handle("DELETE", f"{CONFIG_MAPS}/{name}").status == 200:
            self._tell(f"user deletes the ConfigMap {name}")

    def change_dependent(self) -> None:
        """Change what a run has made."""
        name = self._chance.choice(NAMES)
        body = {"data": {"size": "0"}}
        if self._patch(f"{CONFIG_MAPS}/{name}", body).status == 200:
            self._tell(f"user changes the ConfigMap {name}")

    def make_part(self) -> None:
        """Create what a spec may request."""
        name = f"{self._chance.choice(NAMES)}-{self._chance.choice(PARTS)}"
        answer = self._server.handle("POST", CONFIG_MAPS, body=_named("v1", "ConfigMap", name, NAMESPACE))
        if answer.status == 201:
            self.made.add(answer.body["metadata"]["uid"])
            self._tell(f"user creates the ConfigMap {name}")

    def toggle_pause(self, name: str = "") -> None:
        """Pause a Thing, or resume it: the one with a name, or any."""
        name = name or self._chance.choice(NAMES)
        if self.wanted.get(name) is None:
            return
        self._paused ^= {name}
        self._annotate(name, {PAUSED: "true" if name in self._paused else None})
        self._tell(f"user {'pauses' if name in self._paused else 'resumes'} {name}")

    def toggle_label(self, name: str = "") -> None:
        """Let the selector no longer match a Thing, or match it again: the one with a name, or any."""
        name = name or self._chance.choice(NAMES)
        if self.wanted.get(name) is None:
            return
        self._unselected ^= {name}
        self._label(name, {"app": "another"} if name in self._unselected else SELECTED)
        self._tell(f"user {'takes away' if name in self._unselected else 'gives back'} the label of {name}")

    def _label(self, name: str, labels: dict[str, str]) -> None:
        body = {"metadata": {"labels": labels}}
        self._patch(f"{THINGS}/{name}", body)

    def request(self, name: str = "") -> None:
        """Request a reconcile of a Thing: the one with a name, or any."""
        name = name or self._chance.choice(NAMES)
        if self.wanted.get(name) is not None:
            self._requests += 1
            self._annotate(name, {REQUESTED: str(self._requests)})
            self._tell(f"user requests a reconcile of {name}")

    def _annotate(self, name: str, annotations: dict[str, str | None]) -> None:
        body = {"metadata": {"annotations": annotations}}
        self._patch(f"{THINGS}/{name}", body)

    def _patch(self, path: str, body: RawObject) -> Answer:
        return self._server.handle("PATCH", path, body=body, content_type=MERGE_PATCH)

    def remove_finalizer(self) -> None:
        """Remove the operator's finalizer from a Thing."""
        name = self._chance.choice(NAMES)
        if self.wanted.get(name) is not None:
            body = {"metadata": {"finalizers": None}}
            self._patch(f"{THINGS}/{name}", body)
            self._tell(f"user removes the finalizer of {name}")

    def toggle_gate(self) -> None:
        """Delete what some roles need, or create it again."""
        self._open_gate(is_open=not self._gate_is_open)

    def _open_gate(self, *, is_open: bool) -> None:
        self._gate_is_open = is_open
        if is_open:
            self._server.handle("POST", CONFIG_MAPS, body=_named("v1", "ConfigMap", GATE, NAMESPACE))
        else:
            self._server.handle("DELETE", f"{CONFIG_MAPS}/{GATE}")
        self._tell(f"user {'opens' if is_open else 'closes'} the gate")


def _named(api_version: str, kind: str, name: str, namespace: str = "") -> RawObject:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}

"""What must hold at every moment of a history; each violation is one finding, with its time.

- Runs of one object never overlap, over all replicas (guarantee 3).
- No run starts for an object that the selector doesn't match, or that is paused.
- A run works with a version of its object that isn't earlier than the one that its operator knew before.
- A status reports a success only of the generation of a run that has succeeded, and its size (guarantee 2).
- The finalizer of an object has run when the object goes (guarantee 5).
- A replica writes nothing when another one holds the Lease.
- Nothing is written after the end of a run.
- The operator deletes only what a run has made, and no spec has requested for a moment, if the role prunes.
"""

import asyncio
import math
from typing import TYPE_CHECKING, Any

from rolecall.kube.metadata import is_being_deleted
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.controller.store import Entry
from rolecall.runner.election.elector import LEASE
from tests.simulation.cluster import Answer
from tests.simulation.kinds import THING
from tests.simulation.network import Session
from tests.simulation.replica import Replica
from tests.simulation.runs import CONFIG_MAPS, FINALIZER, NAMESPACE, TOO_LATE, needs
from tests.simulation.user import PARTS, THINGS

if TYPE_CHECKING:
    from tests.simulation.history import History

_RECENT = 40
"""More runs than can be active."""

_EDIT_SECONDS = 5.0
"""An edit that happens between the operator's last look at a spec and its deletion comes too late."""

_PARTS = (*PARTS, "count")
"""The last parts of the names of what a role makes besides the ConfigMap of the object's name."""

_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


class Oracles:
    """Watches one history."""

    def __init__(self, history: "History") -> None:
        self.findings: list[str] = []
        self._history = history
        self._seen = self._runs = 0
        self._started: dict[str, float] = {}
        """When the last reconcile of each object started."""
        self._known: dict[str, Entry | None] = {}
        """What the operator knew of each object when its last reconcile started."""

        self._needed_since: dict[str, float] = {}
        """Since when the specs request each ConfigMap."""

        self._identities: dict[str, str] = {}
        self._must_say_farewell: dict[str, bool] = {}
        history.network.observers.append(self._on_request)
        history.server.on_change.append(self._on_change)

    def find(self, text: str) -> None:
        """Add a finding."""
        self.findings.append(f"at {asyncio.get_running_loop().time():.3f}: {text}")
        self._history.tell(f"FINDING {text}")

    def reconcile_started(self, replica: Replica, name: str, causes: list[str]) -> None:
        """Judge the causes of a reconcile: a success isn't repeated because its status was hard to write."""
        self._judge_versions()
        informer = replica.manager.informers.get(THING.gvk) if replica.manager is not None else None
        self._known[name] = informer.store.get(ObjectKey(NAMESPACE, name)) if informer is not None else None
        before, self._started[name] = self._started.get(name, 0.0), asyncio.get_running_loop().time()
        last = next((fact for fact in reversed(self._history.facts) if fact.name == name), None)
        is_success = last is not None and last.status == "successful" and last.started >= before
        if is_success and all(cause.startswith("retry") for cause in causes):
            self.find(f"a successful run of {name} is repeated: {', '.join(causes)}")

    def may_be_outdated(self, name: str) -> None:
        """Let the next run of an object work with an earlier version: the API server has returned it four times."""
        self._known.pop(name, None)

    def _judge_versions(self) -> None:
        """Judge the versions that new runs work with."""
        for fact in self._history.facts[self._runs :]:
            known = self._known.get(fact.name)
            if known is None or known.uid != fact.uid or not known.is_after(str(fact.version)):
                continue
            newest = self._history.server.handle("GET", f"{THINGS}/{fact.name}").body["metadata"]
            if not known.is_after(newest.get("resourceVersion", "")):  # or a restore has undone that version
                self.find(f"{fact.name} runs with version {fact.version}, although {known.resource_version} is known")
        self._runs = len(self._history.facts)

    def restored(self) -> None:
        """Forget what was undone by a restore of etcd, which no event tells."""
        self._known.clear()
        for name, spec in self._history.user.wanted.items():
            self._note_needs(name, spec)
        for name in self._history.user.living:
            metadata = self._history.server.handle("GET", f"{THINGS}/{name}").body["metadata"]
            self._must_say_farewell[metadata["uid"]] = FINALIZER in (metadata.get("finalizers") or ())

    def _on_request(self, session: Session, method: str, path: str, body: Any, answer: Answer) -> None:
        """Judge a request of a replica that was carried out."""
        if method == "GET" or answer.status >= 300:
            return
        if method == "POST" and body["metadata"].get("name") == TOO_LATE:
            self.find("a process that has outlived its run writes")
        if method == "DELETE" and not path.startswith(_LEASES):
            self._judge_deletion(session, path, body)
        self._judge_lease(session, path, body)
        self._judge_runs()

    def _judge_deletion(self, session: Session, path: str, body: Any) -> None:
        """Judge whether the operator may delete an object: no role deletes."""
        name = path.removeprefix(f"{CONFIG_MAPS}/")
        uid = ((body or {}).get("preconditions") or {}).get("uid")
        is_part = name.partition("-")[2] in _PARTS
        needed_for = asyncio.get_running_loop().time() - self._needed_since.get(name, math.inf)
        if not (self._history.prunes and is_part) or uid in self._history.user.made or needed_for > _EDIT_SECONDS:
            self.find(f"{session.replica} deletes {path}")

    def _judge_lease(self, session: Session, path: str, body: Any) -> None:
        """Judge whether a replica is still the leader."""
        if path.startswith(_LEASES):
            if holder := ((body or {}).get("spec") or {}).get("holderIdentity"):
                self._identities[session.replica] = holder
            return
        if self._history.count == 1 or self._history.shards or "/events" in path:
            return
        lease = self._history.server.object(LEASE, NAMESPACE, "operator") or {}
        holder = (lease.get("spec") or {}).get("holderIdentity")
        if holder and holder != self._identities.get(session.replica):
            self.find(f"{session.replica} writes {path}, although another replica is the leader")

    def _judge_runs(self) -> None:
        self._judge_versions()
        active: dict[str, str] = {}
        selector = self._history.watches[0].selector
        for fact in self._history.facts[-_RECENT:]:
            if not (fact.finalizing or selector.matches(fact.labels)):  # a cleanup may be owed to any object
                self.find(f"{fact.name} runs, although its labels are {fact.labels}")
            if fact.is_paused and not fact.finalizing:
                self.find(f"{fact.name} runs, although it is paused")
            if fact.ended is None:
                if fact.uid in active:
                    self.find(f"two runs of {fact.name} at a time: {active[fact.uid]} and {fact.replica}")
                active[fact.uid] = fact.replica

    def _on_change(self) -> None:
        """Judge the changes since the last call."""
        history = self._history.server.history
        while self._seen < len(history):
            _, kind, obj = history[self._seen]
            self._seen += 1
            if obj.get("kind") == "Thing":
                self._judge_thing(kind, obj)

    def _note_needs(self, name: str, spec: RawObject | None) -> None:
        """Note what a spec requests, and since when; None is that of a deleted object."""
        needed = needs(name, spec, "") if spec is not None else {}
        for each in (name, *(f"{name}-{part}" for part in _PARTS)):
            if each in needed:
                self._needed_since.setdefault(each, asyncio.get_running_loop().time())
            else:
                self._needed_since.pop(each, None)

    def _judge_thing(self, kind: str, obj: RawObject) -> None:
        metadata, status = obj["metadata"], obj.get("status") or {}
        name, uid = metadata["name"], metadata["uid"]
        self._note_needs(name, None if kind == "DELETED" or is_being_deleted(obj) else obj["spec"])
        if kind == "DELETED":
            farewell = self._history.server.handle("GET", f"{CONFIG_MAPS}/{name}-farewell").body.get("data") or {}
            if self._must_say_farewell.pop(uid, False) and uid not in farewell:
                self.find(f"{name} is gone, and its finalizer hasn't run")
            return
        if not is_being_deleted(obj):
            # The user may have removed it: then, its next run adds it again.
            self._must_say_farewell[uid] = FINALIZER in (metadata.get("finalizers") or ())
        conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
        if conditions.get("Successful") == "True" and (observed := status.get("observedGeneration")) is not None:
            done = [
                fact
                for fact in self._history.facts
                if fact.uid == uid and fact.generation == observed and fact.status == "successful"
            ]
            if not done:
                self.find(f"the status of {name} reports a success of generation {observed}, which no run had")

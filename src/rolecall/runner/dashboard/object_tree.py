"""One object on the API server: its spec, its Events, and the tree of the objects that it owns, with their readiness.

It is read when somebody opens the page of the object, never in the background, and within limits of time, number, and
size. Informers, records, and the inventory for ``prune`` name the objects that belong to it, so most are read by name.
The records are that of the last run and that of the last success, because a run may fail before it names anything.
Without an inventory, and a success since the operator started, the object may own others. An object whose metadata
doesn't name its owner isn't shown, so a forged inventory shows nothing. Only the Pods, ReplicaSets, and Jobs of
workloads are listed. A missing permission becomes a note.

The contents of Secrets and ConfigMaps aren't read. Fields that the watch marks as ``sensitive`` are masked, and so is
each secret value that the mask of the last run knows. Without a record of a run there is no such mask, and messages of
other programs, which may quote a secret, are left out.
"""

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from rolecall.kube.bodies import objects_in
from rolecall.kube.errors import ForbiddenError, KubeError, NotFoundError
from rolecall.kube.json_values import texts_in, with_texts
from rolecall.kube.metadata import owner_references_of, status_of, uid_of
from rolecall.kube.readiness import Readiness, Verdict, verdict_on
from rolecall.kube.references import GVK, SECRET, ObjectKey, RawObject
from rolecall.kube.selectors import field_requirement
from rolecall.runner.dashboard.runs import RecordCache, cut_lines
from rolecall.runner.dashboard.sources import Kind, Sources
from rolecall.runner.dashboard.views import ClusterView, EventView, OwnedView
from rolecall.runner.proxy.ownership import Owner, ownership_of
from rolecall.runner.prune.inventory import Inventory
from rolecall.runner.reconcile.kubernetes_events import EVENT
from rolecall.runner.reconcile.proposals import proposal_of
from rolecall.runner.record.timeline import as_yaml, seconds_of
from rolecall.runner.secrets.mask import Mask
from rolecall.system.blocking_work import run_in_thread

READ_SECONDS: Final = 5.0
MAX_CONCURRENT_REQUESTS: Final = 8
# The number of objects whose last view is kept for the part of a page that updates itself.
MAX_KEPT: Final = 32
MAX_OBJECTS: Final = 100
MAX_EVENTS: Final = 50
MAX_BYTES: Final = 4 << 20
MASKED: Final = "(masked)"
NO_MASK: Final = "Messages are not shown, because memory has no record of a run whose secret values could be masked."

_POD, _REPLICA_SET = GVK("", "v1", "Pod"), GVK("apps", "v1", "ReplicaSet")
# The kind of the objects that a workload's controller creates.
_OF_PODS: Final = dict.fromkeys(("ReplicaSet", "StatefulSet", "DaemonSet", "Job"), _POD)
_LISTED: Final = {"Deployment": _REPLICA_SET, "CronJob": GVK("batch", "v1", "Job"), **_OF_PODS}
_METADATA_ONLY: Final = (SECRET, GVK("", "v1", "ConfigMap"))
_Name = tuple[GVK, ObjectKey]


@dataclass(slots=True)
class ClusterViews:
    """Reads the views of all pages, with few requests at a time, and keeps the last ones."""

    sources: Sources
    records: RecordCache
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT_REQUESTS))
    _last: OrderedDict[tuple[str, ObjectKey], ClusterView] = field(default_factory=OrderedDict)

    async def get(self, kind: Kind, key: ObjectKey, *, is_new: bool) -> ClusterView:
        """Return the last view of an object, or a new one; if that fails, the last one with the reason."""
        last = self._last.get((kind.id, key), ClusterView())
        if not is_new:
            return last
        view = await _Reading(self, kind, key).view()
        self._last[kind.id, key] = view = replace(last, trouble=view.trouble) if view.trouble else view
        self._last.move_to_end((kind.id, key))
        if len(self._last) > MAX_KEPT:
            self._last.popitem(last=False)
        return view


@dataclass(slots=True)
class _Reading:
    """The requests for one view; ``notes`` are what is missing, and the functions mask reasons and messages."""

    views: ClusterViews
    kind: Kind
    key: ObjectKey
    end: float = field(default_factory=lambda: asyncio.get_running_loop().time() + READ_SECONDS)
    notes: dict[str, None] = field(default_factory=dict)
    known: dict[str, set[_Name]] = field(default_factory=lambda: defaultdict(set))
    seen: set[_Name] = field(default_factory=set)
    root: Owner | None = None
    redact: Callable[[str], str] = lambda _: ""
    shown: Callable[[str], str] = lambda _: ""

    async def view(self) -> ClusterView:
        """Return the view."""
        try:
            obj = await self._request(self.kind.gvk, self.key.namespace, self.key.name)
            spec = await self._masked_spec(obj)
        except (KubeError, TimeoutError) as error:
            return ClusterView(trouble=_reason(error, f"get this {self.kind.gvk.kind}"))
        except Exception as error:  # noqa: BLE001 - what can't be masked isn't shown
            return ClusterView(trouble=f"The operator cannot mask the secret values: {type(error).__name__}.")
        knows_owned = await self._find_dependents(obj)
        selector = field_requirement("involvedObject.uid", uid_of(obj))
        raw = await self._list(EVENT, self.key.namespace or "default", 10 * MAX_EVENTS, fieldSelector=selector)
        events = sorted(map(self._event, raw), key=lambda each: each.last, reverse=True)[:MAX_EVENTS]
        owned = await self._owned(self.kind.gvk, obj)
        as_of = self.views.sources.manager.clock.now()
        found = ClusterView(as_of, "", tuple(self.notes), owned, knows_owned, tuple(events), cut_lines(spec))
        return self._with_obsolete(found, obj)

    def _with_obsolete(self, view: ClusterView, root: RawObject) -> ClusterView:
        """Return a view with what prune deletes later, or proposes to a person."""
        proposal, inventory = proposal_of(root), Inventory.of(root)
        proposed = proposal.objects if proposal is not None else ()
        # Until the set is stable, it isn't known whether a person must confirm.
        later = [each for each in inventory.obsolete if each not in proposed and each.seen and inventory.stable]
        return replace(
            view,
            obsolete=tuple(self.redact(str(each)) for each in later[:MAX_OBJECTS]),
            proposed=tuple(self.redact(str(each)) for each in proposed[:MAX_OBJECTS]),
            confirm=proposal.command(self.kind.gvk, self.key) if proposal is not None else "",
        )

    async def _request(self, gvk: GVK, namespace: str, name: str = "", **query: str) -> RawObject:
        """Return an object or a list. Raise KubeError, or TimeoutError at the end of the time for a view."""
        async with asyncio.timeout_at(self.end), self.views.slots:
            client, metadata_only = self.views.sources.manager.client, gvk in _METADATA_ONLY
            return await client.read(gvk, namespace, name, max_bytes=MAX_BYTES, metadata_only=metadata_only, **query)

    async def _list(self, gvk: GVK, namespace: str, limit: int, **query: str) -> list[RawObject]:
        """Return the first objects of a kind in a namespace; none, with a note, if that fails."""
        try:
            response = await self._request(gvk, namespace, limit=str(limit), **query)
        except (KubeError, TimeoutError) as error:
            self.notes[_reason(error, f"list {gvk.kind} objects in {namespace}")] = None
            return []
        if (response.get("metadata") or {}).get("continue"):
            self.notes[f"Only the first {limit} {gvk.kind} objects of an owner are shown."] = None
        return response.get("items") or []

    async def _masked_spec(self, obj: RawObject) -> list[str]:
        """Return the lines of the spec, masked, and prepare the functions that mask other texts."""
        recorder, watch = self.views.sources.recorder, self.kind.watched.watch
        *_, record = (None, *recorder.memory.runs(self.kind.gvk, self.key))
        mask = await recorder.mask_of(watch, record or recorder.start(watch, obj, "", ()))
        spec = await run_in_thread(partial(self._mask, obj, mask))
        self.shown = self.shown if record is None else self.redact
        self.notes |= {NO_MASK: None} if record is None else {}
        return spec

    def _mask(self, obj: RawObject, mask: Mask) -> list[str]:
        """Return the lines of the spec; sensitive fields are masked also if their values are short, or numbers."""
        masked = with_texts(obj, str)
        for match in (match for path in self.kind.watched.watch.sensitive for match in path.find(obj)):
            match.full_path.update(masked, MASKED)
            list(map(mask.add, texts_in(match.value)))
        self.redact = mask.redactor(MASKED)
        return as_yaml({"spec": with_texts(masked["spec"], self.redact, with_keys=True)}) if masked.get("spec") else []

    async def _find_dependents(self, root: RawObject) -> bool:
        """Collect the known objects by the uids of their owners; return whether all objects of the root are known."""
        owner = self.root = Owner(self.kind.gvk, self.key, uid_of(root), namespaced=bool(self.key.namespace))
        annotations = owner.type_annotation, str(self.key)
        informers = self.views.sources.manager.informers
        for number, (gvk, entry) in enumerate([(kind, each) for kind in informers for each in informers[kind].store]):
            if number % 1000 == 0:
                await asyncio.sleep(0)  # other work of the event loop
            for reference in entry.owners:
                self.known[reference.uid].add((gvk, entry.key))
            if (entry.primary_resource_type, entry.primary_resource) == annotations:
                self.known[owner.uid].add((gvk, entry.key))
        runs = self.views.sources.recorder.memory.runs(self.kind.gvk, self.key)
        succeeded = [each.ident for each in runs if each.ending.outcome == "succeeded"][-1:]
        last = [each.ident for each in runs][-1:]
        records = [await self.views.records.get(self.kind, self.key, each) for each in dict.fromkeys(succeeded + last)]
        for exchange in (each for record in records if record is not None for each in record.exchanges):
            is_object = "resource" in exchange and not exchange.get("subresource")  # not the response of a Pod
            for obj in objects_in((exchange.get("answer") or {}).get("json")) if is_object else ():
                if obj.get("kind") and ownership_of(obj, owner) is not None:
                    self.known[owner.uid].add((GVK.of_object(obj), ObjectKey.of_object(obj)))
        inventory = [(GVK(each.id.group, each.version, each.kind), each.id.key) for each in Inventory.of(root).objects]
        self.known[owner.uid].update(inventory)
        has_informers = self.kind.watched.watch.watch_dependent_resources
        history = self.views.sources.recorder.history
        return bool(succeeded or inventory) or (has_informers and history.has_succeeded(self.kind.gvk, self.key))

    async def _owned(self, gvk: GVK, owner: RawObject) -> tuple[OwnedView, ...]:
        """Return the tree below an object."""
        found: dict[_Name, RawObject | None] = dict.fromkeys(self.known[uid_of(owner)])
        if (kind := _LISTED.get(gvk.kind)) is not None and gvk.group in ("apps", "batch"):
            labels = ((owner.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
            selector, namespace = ",".join(map("=".join, labels.items())), ObjectKey.of_object(owner).namespace
            for obj in await self._list(kind, namespace, MAX_OBJECTS, labelSelector=selector):
                if any(each.uid == uid_of(owner) for each in owner_references_of(obj)):
                    found[kind, ObjectKey.of_object(obj)] = obj
        new = sorted(found.keys() - self.seen)
        if (left := MAX_OBJECTS - len(self.seen)) < len(new):
            self.notes[f"Only {MAX_OBJECTS} owned objects are shown."] = None
        self.seen.update(new[:left])
        nodes = await asyncio.gather(*(self._node(*each, found[each], uid_of(owner)) for each in new[:left]))
        return tuple(each for each in nodes if each is not None)

    async def _node(self, gvk: GVK, key: ObjectKey, obj: RawObject | None, owner: str) -> OwnedView | None:
        """Return an object with the tree below it.

        Return None if it was deleted, if it has lost its owner since it was recorded, or if it is a ReplicaSet that was
        replaced. ``owner`` is the uid of the owner.
        """
        try:
            obj = obj or await self._request(gvk, key.namespace, key.name)
            if self.root is not None and owner == self.root.uid and ownership_of(obj, self.root) is None:
                return None
            is_idle = gvk == _REPLICA_SET and not (obj["spec"].get("replicas") or status_of(obj).get("replicas"))
            if is_idle and any(each.kind == "Deployment" for each in owner_references_of(obj)):
                return None
            verdict, owned = verdict_on(gvk, obj, self.views.sources.manager.clock.now()), await self._owned(gvk, obj)
            verdict = replace(verdict, reason=self.redact(verdict.reason), message=self.shown(verdict.message))
        except NotFoundError:
            return None
        except (KubeError, TimeoutError) as error:
            verdict, owned = Verdict(Readiness.UNKNOWN, _reason(error, "get it")), ()
        page = next((each.id for each in self.views.sources.kinds if each.gvk == gvk and each.note(key)), "")
        return OwnedView(gvk.kind, gvk.api_version, key.namespace, key.name, page, verdict, owned)

    def _event(self, raw: RawObject) -> EventView:
        """Return an Event, written with either API."""
        series = raw.get("series") or {}
        times = (series.get("lastObservedTime"), *map(raw.get, ("lastTimestamp", "eventTime", "firstTimestamp")))
        kind, reason, message = (str(raw.get(name) or "") for name in ("type", "reason", "message"))
        last = next((seconds for each in times if each and (seconds := seconds_of(each))), 0.0)
        count = series.get("count") or raw.get("count") or 1
        return EventView(kind, self.redact(reason), self.shown(message), count, last)


def _reason(error: Exception, action: str) -> str:
    """Return that an action on the API server failed, without the text of the error, which may quote an object."""
    verb = "is not permitted to" if isinstance(error, ForbiddenError) else "cannot"
    return f"The operator {verb} {action} ({type(error).__name__.removesuffix('Error')})."

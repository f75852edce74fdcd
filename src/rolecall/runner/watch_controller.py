"""The controller of one watch: which changes reconcile its kind, and everything that a reconcile needs.

Changes come from three sources: the primaries themselves, the objects that ``triggers`` name, and the dependents that
runs create, whose kinds the proxy reports. Each change becomes a request with its cause in the work queue of the kind,
unless the primary's own run caused it.

The objects of one kind by shard, so that those of a shard are found when this replica takes or loses it.

A shard that is taken is a first round of its objects: what has changed meanwhile goes first.

The first round: which objects go first when an operator starts and reconciles every object once.

Most objects have not changed while no operator was running. The objects that clients wait for are new, have another
generation than the last run saw, are being deleted, or had a run in progress when the last operator stopped.

The metrics of each watch, and the names of its controller.

A controller is named ``<kind>-<version>-controller``, as in the Go runner. If two groups have a kind of that name, the
name contains the group too, so that no two controllers share one.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from rolecall.kube.client import Client
from rolecall.kube.discovery import ApiResource
from rolecall.kube.jsonpath import FieldPath
from rolecall.kube.metadata import generation_of, is_being_deleted, metadata_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.settings import Backoff, Settings
from rolecall.runner.config.watches import Trigger, Watch
from rolecall.runner.controller.controller import Controller
from rolecall.runner.controller.informer import Informer
from rolecall.runner.controller.manager import Manager
from rolecall.runner.controller.priorities import Priority
from rolecall.runner.controller.store import Change
from rolecall.runner.controller.triggers import (
    PrimaryPredicate,
    TriggerIndex,
    dependent_changed,
    requests_for_annotation,
    requests_for_owner,
)
from rolecall.runner.controller.work_queue import Cause, WorkQueue
from rolecall.runner.election.shard_member import HeldShards
from rolecall.runner.proxy import Ownership, Proxy
from rolecall.runner.reads.observed_state import Target
from rolecall.runner.reads.read_sets import ReadBackoff, ReadCause, ReadRules, ReadSets
from rolecall.runner.reads.read_watches import ReadWatches
from rolecall.runner.reconcile.context import PAUSED_ANNOTATION, RECONCILE_REQUESTED_AT_ANNOTATION
from rolecall.runner.reconcile.kubernetes_events import EventRecorder, EventReporter
from rolecall.runner.reconcile.own_writes import OwnWrites, PrimaryCause, SelfTriggers
from rolecall.runner.reconcile.read_triggers import ReadTriggers, SelectedPrimaries
from rolecall.runner.reconcile.reconciler import Reconciler
from rolecall.runner.reconcile.status import (
    FAILURE,
    IN_PROGRESS,
    INTERRUPTED,
    RUNNING,
    SUCCESSFUL,
    Readiness,
    condition_of,
)
from rolecall.runner.reconcile.status_writer import Primaries, StatusWriter
from rolecall.runner.record.recorder import Recorder
from rolecall.runner.record.traces import UNTRACED, ReconcileTracer
from rolecall.runner.runs.api_access import ApiAccess, SharedDiscovery
from rolecall.runner.runs.events import RunSummary
from rolecall.runner.runs.launcher import Launcher
from rolecall.runner.runs.orphaned_workspaces import OrphanedWorkspaces
from rolecall.runner.runs.process import Runner
from rolecall.runner.serving.controller_metrics import ControllerMetrics
from rolecall.runner.serving.operator_metrics import OperatorMetrics
from rolecall.system.clock import Clock
from rolecall.system.logs import get_logger


def priority_in_first_round(obj: RawObject, *, manages_status: bool) -> Priority:
    """Return the priority of a primary at the start; ``manages_status`` says whether its runs report a status."""
    return Priority.HIGH if is_being_deleted(obj) or not _is_reconciled(obj, manages_status) else Priority.LOW


def _is_reconciled(obj: RawObject, manages_status: bool) -> bool:  # noqa: FBT001 - one of two arguments
    status = obj.get("status")
    status = status if isinstance(status, dict) else {}
    running = condition_of(status, RUNNING) or {}
    # A failure leaves the reason of the run in place, with the status False.
    if manages_status and (running.get("status"), running.get("reason")) in (
        ("True", IN_PROGRESS),
        ("False", INTERRUPTED),
    ):
        return False
    observed = status.get("observedGeneration")
    if observed is not None:
        return bool(observed == generation_of(obj))
    # The schema of a CRD may drop the field, and the Go runner does not write it: then a result is all that is known.
    return not manages_status or any(condition_of(status, kind) for kind in (SUCCESSFUL, FAILURE))


class ShardedPrimaries:
    """The selected objects of a watch.

    ``forget`` is told of each that this replica does not reconcile any more, and ``look_for_orphans`` is called when
    one may have been deleted that no reconcile of this replica will find gone.
    """

    def __init__(
        self,
        watch: Watch,
        shards: HeldShards,
        queue: WorkQueue[ObjectKey],
        forget: Callable[[ObjectKey], None],
        look_for_orphans: Callable[[], None],
    ) -> None:
        self._watch = watch
        self._shards = shards
        self._queue = queue
        self._forget = forget
        self._look_for_orphans = look_for_orphans
        self._priorities: defaultdict[int, dict[ObjectKey, Priority]] = defaultdict(dict)

    def on_change(self, change: Change) -> None:
        """Take note of an object, whoever reconciles it."""
        key = change.key
        index = self._shards.shard_of(self._watch.gvk, key)
        priorities = self._priorities[index]
        if change.new is None or not self._watch.selector.matches(change.new.labels):
            priorities.pop(key, None)
            if change.new is None and index not in self._shards.held:
                self._look_for_orphans()
        else:
            priorities[key] = priority_in_first_round(change.obj, manages_status=self._watch.manage_status)

    def taken(self, index: int) -> None:
        """Request a reconcile of each object of a shard."""
        for key, priority in self._priorities[index].items():
            self._queue.add(key, Cause("shard taken", priority=priority))

    def dropped(self, index: int) -> None:
        """Drop the requests of a shard."""
        self._queue.discard(lambda key: self._shards.shard_of(self._watch.gvk, key) == index)
        for key in self._priorities[index]:
            self._forget(key)
        self._look_for_orphans()  # the request of a deleted object may be among those that were dropped


def controller_names(kinds: Iterable[GVK]) -> dict[GVK, str]:
    """Return the name of each kind's controller, in lower case."""
    gvks = tuple(kinds)
    sharing = Counter((gvk.kind.lower(), gvk.version) for gvk in gvks)
    names = {}
    for gvk in gvks:
        group = f"{gvk.group}-" if sharing[gvk.kind.lower(), gvk.version] > 1 and gvk.group else ""
        names[gvk] = f"{gvk.kind}-{group}{gvk.version}-controller".lower()
    return names


@dataclass(frozen=True, slots=True)
class WatchMetrics:
    """Measures one watch: its controller and queue through ``observer``, its objects, and its runs."""

    metrics: OperatorMetrics
    gvk: GVK
    observer: ControllerMetrics

    def primary_changed(self, change: Change, *, selected: bool) -> None:
        """Record when a primary was created; drop the series of one that is gone or no longer selected."""
        key, gvk = change.key, self.gvk
        labels = (key.name, key.namespace, gvk.group, gvk.version, gvk.kind)
        if selected:
            self.metrics.resource_created_at.set(labels, str(metadata_of(change.obj).get("creationTimestamp") or ""))
        else:
            self.metrics.resource_created_at.remove(labels)

    def run_ended(self, summary: RunSummary) -> None:
        """Count a run by how it ended."""
        self.metrics.reconcile_results.count(str(self.gvk), succeeded=summary.is_successful)


@dataclass(frozen=True, slots=True)
class WatchMetricsFactory:
    """Makes the metrics of each watch of an operator."""

    metrics: OperatorMetrics
    names: Mapping[GVK, str]

    @classmethod
    def of_kinds(cls, metrics: OperatorMetrics, kinds: Iterable[GVK]) -> Self:
        """Return a factory for the kinds of ``watches.yaml``."""
        return cls(metrics, controller_names(kinds))

    def of(self, gvk: GVK, workers: int) -> WatchMetrics:
        """Return the metrics of one watch, with all series at 0."""
        self.metrics.reconcile_results.add_kind(str(gvk))
        observer = self.metrics.controllers.observer(self.names[gvk], str(gvk), workers)
        return WatchMetrics(self.metrics, gvk, observer)


logger = get_logger("watch")
_CONTENT_RETRY_SECONDS = 1.0
"""Not at once: a role that changes its own files would run without a pause."""
_WATCHED_ANNOTATIONS = tuple(
    FieldPath.of_names("metadata", "annotations", name)
    for name in (PAUSED_ANNOTATION, RECONCILE_REQUESTED_AT_ANNOTATION)
)


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """What all watches of an operator share.

    ``root`` is the directory of the workspaces, ``run_environment`` has further variables of every run.
    """

    settings: Settings
    client: Client
    proxy: Proxy
    runner: Runner
    manager: Manager
    clock: Clock
    root: Path
    own_writes: OwnWrites
    events: EventRecorder
    watch_metrics: WatchMetricsFactory
    may_write: Callable[[], bool] = lambda: True
    """Whether this replica may still write, which with leader election only the leader may."""
    run_environment: Mapping[str, str] = field(default_factory=dict)
    recorder: Recorder | None = None
    read_watches: ReadWatches | None = None
    """What is watched because runs have read it."""
    discovery: SharedDiscovery | None = None
    tracer: ReconcileTracer = UNTRACED
    shards: HeldShards | None = None
    """The shards of this replica, if it shares the work with others."""


class WatchController:
    """Reconciles the kind of one watch."""

    def __init__(self, watch: Watch, context: OperatorContext) -> None:
        self.watch = watch
        self._context = context
        settings = context.settings
        backoff = Backoff(settings.backoff_min_seconds, settings.backoff_max_seconds)
        workers = watch.workers or settings.workers
        self._metrics = context.watch_metrics.of(watch.gvk, workers)
        accepts = context.shards.accepts(watch.gvk) if context.shards else None
        self.queue: WorkQueue[ObjectKey] = WorkQueue(context.clock, backoff, self._metrics.observer, accepts)
        self._self_triggers = SelfTriggers(watch.gvk, context.own_writes)
        self._predicate = PrimaryPredicate(
            watch.selector,
            watch.watch_annotations_changes,
            _WATCHED_ANNOTATIONS,
            has_finalizer=bool(watch.finalizer),
        )
        self._dependents: set[tuple[GVK, Ownership]] = set()
        self._primaries = context.manager.informer_for(watch.gvk)
        self._reads = self._read_triggers()
        self._indexes = [self._follow(trigger) for trigger in watch.triggers]
        self._primaries.subscribe(self._on_primary, _WATCHED_ANNOTATIONS)
        self.reconciler = self._make_reconciler()
        self.orphaned_workspaces = OrphanedWorkspaces(
            context.root, self._primaries, settings.namespaces, self.queue.is_processing, self.reconciler.forget
        )
        if context.shards is not None:
            self._share(context.shards)
        self.controller = Controller(
            name=str(watch.gvk),
            queue=self.queue,
            workers=workers,
            reconcile=self.reconciler.reconcile,
            is_self_trigger=self._is_answered,
            kind=watch.gvk.kind,
            group=watch.gvk.group,
            metrics=self._metrics.observer,
        )

    @property
    def primaries(self) -> Informer:
        """The informer of the kind."""
        return self._primaries

    @property
    def followed_dependents(self) -> frozenset[tuple[GVK, Ownership]]:
        """The kinds of dependents that have been seen, and how they name their primary."""
        return frozenset(self._dependents)

    def reads_of(self, key: ObjectKey) -> tuple[Target, ...]:
        """Return what wakes an object because its runs have read it."""
        return self._reads.targets(key) if self._reads is not None else ()

    def content_changed(self) -> None:
        """Retry everything that failed soon, because the files of the role have changed."""
        self.queue.retry_within(_CONTENT_RETRY_SECONDS, Cause("files of the role changed"))

    def _share(self, shards: HeldShards) -> None:
        forget = self._reads.forget if self._reads is not None else _forget_nothing
        primaries = ShardedPrimaries(self.watch, shards, self.queue, forget, self.orphaned_workspaces.request_scan)
        self._primaries.subscribe(primaries.on_change)
        shards.add(primaries)

    def _make_reconciler(self) -> Reconciler:
        context, watch = self._context, self.watch
        access = ApiAccess(
            client=context.client,
            proxy=context.proxy,
            own_writes=context.own_writes,
            on_dependent=self._on_dependent_kind,
            directory=context.settings.kubeconfig_directory or context.root,
            inject_owner=context.settings.inject_owner_reference,
            environment=context.run_environment,
            reads=self._read_sets(),
            discovery=context.discovery,
        )
        primaries = Primaries(context.client, watch.gvk, context.own_writes, context.may_write)
        return Reconciler(
            watch=watch,
            primaries=primaries,
            launcher=Launcher(watch, context.runner, access, context.settings, context.root),
            status=StatusWriter(primaries, Readiness.of_watch(watch, default=context.settings.ready_conditions)),
            self_triggers=self._self_triggers,
            events=EventReporter(context.events.record),
            observer=self._metrics,
            default_period_seconds=context.settings.reconcile_period_seconds,
            recorder=context.recorder,
            reads=self._reads,
            tracer=context.tracer,
        )

    def _read_triggers(self) -> ReadTriggers | None:
        context, watch = self._context, self.watch
        if not watch.watch_reads or context.read_watches is None:
            return None
        primaries = SelectedPrimaries(watch.gvk, self._primaries.store.get, watch.selector)
        delays = ReadBackoff(context.clock)
        return ReadTriggers(primaries, self.queue, self._self_triggers, context.events.record, delays)

    def _read_sets(self) -> ReadSets | None:
        if self._reads is None or self._context.read_watches is None:
            return None
        others = {trigger.gvk for trigger in self.watch.triggers} | self.watch.blacklist
        rules = ReadRules(frozenset((gvk.group, gvk.kind) for gvk in others))
        return self._reads.read_sets(self._context.read_watches, rules)

    def _is_answered(self, key: ObjectKey, cause: Cause) -> bool:
        """Return whether a cause that came in during a run needs no other run."""
        if self._reads is not None and isinstance(cause, ReadCause) and self._reads.is_old(key, cause):
            return True
        return self._self_triggers.is_self_trigger(key, cause)

    def _follow(self, trigger: Trigger) -> TriggerIndex:
        index = TriggerIndex(trigger, self.watch.gvk)

        def on_change(change: Change) -> None:
            for key, text in index.requests_for(change):
                self._enqueue(key, change.cause(text))

        self._context.manager.informer_for(trigger.gvk).subscribe(on_change, trigger.fields)
        return index

    def _on_primary(self, change: Change) -> None:
        is_selected = change.new is not None and self.watch.selector.matches(change.new.labels)
        self._metrics.primary_changed(change, selected=is_selected)
        for index in self._indexes:
            if is_selected:
                index.update_primary(change.key, change.obj)
            else:
                index.remove_primary(change.key)
        priority = self._priority_of(change)
        if self._reads is not None and not is_selected:
            self._reads.forget(change.key)
        if self._predicate(change):
            self._enqueue(change.key, self._primary_cause(change, priority))
        if not self._has_started:
            self.queue.lower(change.key, priority)  # what another replica has reconciled meanwhile is not urgent

    @property
    def _has_started(self) -> bool:
        """Whether reconciles have started; before that everything that is due belongs to the first round."""
        return self._context.manager.dispatcher.has_started

    def _priority_of(self, change: Change) -> Priority:
        """Return the priority of a change of a primary."""
        if change.in_initial_list or not self._has_started:
            return priority_in_first_round(change.obj, manages_status=self.watch.manage_status)
        return Priority.HIGH

    def _primary_cause(self, change: Change, priority: Priority) -> PrimaryCause:
        old, new = change.old, change.new
        changed_spec = old is not None and new is not None and old.generation != new.generation
        generation = f" (generation {new.generation})" if changed_spec and new is not None else ""
        cause = change.cause(change.reason + generation)
        return PrimaryCause(
            cause.text, cause.uid, cause.resource_version, cause.is_removal, changed_spec, priority=priority
        )

    def _on_dependent_kind(self, resource: ApiResource, ownership: Ownership) -> None:
        """Watch a kind of dependents from its first object on, until the operator stops."""
        gvk = resource.gvk
        if (gvk, ownership) in self._dependents:
            return
        self._dependents.add((gvk, ownership))
        if not self._is_watched_dependent(resource, ownership):
            logger.info("Resource will not be watched/cached.", dependent=str(gvk), ownership=ownership.value)
            return
        logger.info("Watching child resource", gvk=str(self.watch.gvk), dependent=str(gvk), ownership=ownership.value)
        informer: Informer = self._context.manager.informer_for(gvk)
        informer.subscribe(self._on_owned if ownership is Ownership.OWNER_REFERENCE else self._on_annotated)

    def _is_watched_dependent(self, resource: ApiResource, ownership: Ownership) -> bool:
        # Other entries of watches.yaml do not matter here: a trigger on the same kind is another subscriber.
        if not self.watch.watch_dependent_resources or resource.gvk in self.watch.blacklist:
            return False
        is_tied_by_name = ownership is Ownership.ANNOTATION and not resource.namespaced
        return self.watch.watch_cluster_scoped_resources or not is_tied_by_name

    def _on_owned(self, change: Change) -> None:
        if dependent_changed(change):
            for key, uid in sorted(requests_for_owner(change, self.watch.gvk)):
                entry = self._primaries.store.get(key)
                # A primary that was made anew may miss what is deleted together with the one before it.
                if change.new is None or (entry is not None and entry.uid == uid):
                    self._enqueue_selected(key, change)

    def _on_annotated(self, change: Change) -> None:
        if dependent_changed(change):
            for key in sorted(requests_for_annotation(change, self.watch.gvk)):
                self._enqueue_selected(key, change)

    def _enqueue_selected(self, key: ObjectKey, change: Change) -> None:
        """Enqueue a primary that a dependent names, if it exists and the selector matches it."""
        entry = self._primaries.store.get(key)
        if entry is not None and self.watch.selector.matches(entry.labels):
            self._enqueue(key, change.cause(f"dependent {change.reason}"))

    def _enqueue(self, key: ObjectKey, cause: Cause) -> None:
        if not self._has_started and not isinstance(cause, PrimaryCause):
            cause = replace(cause, priority=Priority.LOW)
        # A cause that arrives during a run is judged at its end, when the answers to all its writes are known.
        if self.queue.is_processing(key) or not self._self_triggers.is_self_trigger(key, cause):
            self.queue.add(key, cause)


def _forget_nothing(_key: ObjectKey) -> None:
    """Do nothing: no reads are known."""

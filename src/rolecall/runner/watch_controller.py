"""The controller of one watch: which changes reconcile its kind, and everything that a reconcile needs.

Changes come from three sources: the primaries themselves, the objects that ``triggers`` name, and the dependents that
runs create, whose kinds the proxy reports. Each change becomes a request with its cause in the work queue of the kind,
unless the primary's own run caused it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from rolecall.kube.client import Client
from rolecall.kube.discovery import ApiResource
from rolecall.kube.field_paths import FieldPath
from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.backoff import Backoff
from rolecall.runner.controller.changes import Change
from rolecall.runner.controller.controller import Controller
from rolecall.runner.controller.informer import Informer
from rolecall.runner.controller.manager import Manager
from rolecall.runner.controller.predicates import PrimaryPredicate, dependent_changed
from rolecall.runner.controller.priorities import Priority
from rolecall.runner.controller.triggers import Trigger, TriggerIndex, requests_for_annotation, requests_for_owner
from rolecall.runner.controller.work_queue import Cause, WorkQueue
from rolecall.runner.election.held_shards import HeldShards
from rolecall.runner.proxy import Ownership, Proxy
from rolecall.runner.reads.observed_state import Target
from rolecall.runner.reads.read_delays import ReadDelays
from rolecall.runner.reads.read_sets import ReadCause, ReadRules, ReadSets
from rolecall.runner.reads.read_watches import ReadWatches
from rolecall.runner.reconcile.event_recorder import EventRecorder
from rolecall.runner.reconcile.event_reporter import EventReporter
from rolecall.runner.reconcile.initial_reconcile import priority_in_first_round
from rolecall.runner.reconcile.own_writes import OwnWrites, PrimaryCause, SelfTriggers
from rolecall.runner.reconcile.pause import PAUSED_ANNOTATION, RECONCILE_AT_ANNOTATION
from rolecall.runner.reconcile.primaries import Primaries
from rolecall.runner.reconcile.read_triggers import ReadTriggers, SelectedPrimaries
from rolecall.runner.reconcile.readiness import Readiness
from rolecall.runner.reconcile.reconciler import Reconciler
from rolecall.runner.reconcile.sharded_primaries import ShardedPrimaries
from rolecall.runner.reconcile.status_writer import StatusWriter
from rolecall.runner.reconcile.traces import UNTRACED, ReconcileTracer
from rolecall.runner.reconcile.watch_metrics import WatchMetricsFactory
from rolecall.runner.record.recorder import Recorder
from rolecall.runner.runs.api_access import ApiAccess
from rolecall.runner.runs.launcher import Launcher
from rolecall.runner.runs.orphaned_workspaces import OrphanedWorkspaces
from rolecall.runner.runs.runner import Runner
from rolecall.runner.runs.shared_discovery import SharedDiscovery
from rolecall.system.clock import Clock
from rolecall.system.logs import get_logger

logger = get_logger("watch")
_CONTENT_RETRY_SECONDS = 1.0
"""Not at once: a role that changes its own files would run without a pause."""
_WATCHED_ANNOTATIONS = tuple(
    FieldPath.of_names("metadata", "annotations", name) for name in (PAUSED_ANNOTATION, RECONCILE_AT_ANNOTATION)
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
            observer=self._metrics.observer,
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
        primaries = ShardedPrimaries(self.watch, shards, self.queue, forget, self.orphaned_workspaces.look_again)
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
        delays = ReadDelays(context.clock)
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

        self._context.manager.informer_for(trigger.gvk).subscribe(on_change, trigger.on)
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

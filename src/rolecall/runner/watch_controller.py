"""The controller of one watch: which changes reconcile its kind, and everything that a reconcile needs.

Changes come from the primaries themselves, the objects that ``triggers`` name, the dependents that runs create (the
proxy reports their kinds), and the objects that runs read. Each change becomes a request with its cause in the kind's
work queue, unless the primary's own run caused it.

When an operator starts, it reconciles every object once. Most objects haven't changed while no operator was running, so
the ones that clients wait for come first: those that are new, have another generation than the last run saw, are being
deleted, or had a run in progress when the last operator stopped. The same applies to the objects of a shard when this
replica takes it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rolecall.kube.discovery import ApiResource
from rolecall.kube.jsonpath import FieldPath
from rolecall.kube.metadata import generation_of, is_being_deleted, metadata_of, status_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import Trigger, Watch
from rolecall.runner.controller.controller import Controller
from rolecall.runner.controller.informer import Informer
from rolecall.runner.controller.manager import Manager
from rolecall.runner.controller.store import Change
from rolecall.runner.controller.triggers import (
    STATUS_FIELDS,
    TriggerIndex,
    dependent_changed,
    primary_changed,
    requests_for_annotation,
    requests_for_owner,
)
from rolecall.runner.controller.work_queue import Backoff, Cause, Priority, WorkQueue
from rolecall.runner.election.shard_member import HeldShards, ShardedPrimaries
from rolecall.runner.proxy.ownership import Ownership
from rolecall.runner.proxy.server import Proxy
from rolecall.runner.prune.observations import ObjectId
from rolecall.runner.reads.read_sets import ReadCause
from rolecall.runner.reads.read_watches import ReadWatches
from rolecall.runner.reconcile.context import (
    CONFIRM_ANNOTATION,
    PAUSED_ANNOTATION,
    PERIOD_ANNOTATION,
    RECONCILE_REQUESTED_AT_ANNOTATION,
)
from rolecall.runner.reconcile.kubernetes_events import WARNING, EventRecorder, EventReporter, EventSpec
from rolecall.runner.reconcile.pruner import Pruner
from rolecall.runner.reconcile.read_triggers import ReadTriggers
from rolecall.runner.reconcile.reconciler import Reconciler
from rolecall.runner.reconcile.second_operator import SecondOperator
from rolecall.runner.reconcile.status import (
    FAILURE,
    IN_PROGRESS,
    INTERRUPTED,
    RUNNING,
    SUCCESSFUL,
    Readiness,
    own_condition,
)
from rolecall.runner.reconcile.status_writer import Primaries, StatusWriter
from rolecall.runner.record.recorder import Recorder
from rolecall.runner.runs.content import contents_of, mentions
from rolecall.runner.runs.disk_space import OrphanedWorkspaces
from rolecall.runner.runs.events import PRUNE_ACTION
from rolecall.runner.runs.launcher import Launcher
from rolecall.runner.runs.own_writes import DependentCause, OwnWrites, PrimaryCause, SelfTriggers
from rolecall.runner.runs.process import Runner
from rolecall.runner.runs.shared_discovery import SharedDiscovery
from rolecall.runner.serving.metrics import OperatorMetrics
from rolecall.system.logs import get_logger

if TYPE_CHECKING:  # only imported if traces are exported
    from rolecall.runner.record.spans import Tracer

logger = get_logger("watch")
_CONTENT_RETRY_SECONDS = 1.0
"""Not immediately: a role that changes its own files would run without a pause."""

_WATCHED_ANNOTATIONS = tuple(
    FieldPath.of_names("metadata", "annotations", name)
    for name in (PAUSED_ANNOTATION, RECONCILE_REQUESTED_AT_ANNOTATION, PERIOD_ANNOTATION, CONFIRM_ANNOTATION)
)


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """What all watches of an operator share."""

    settings: Settings
    proxy: Proxy
    manager: Manager
    own_writes: OwnWrites
    read_watches: ReadWatches
    may_write: Callable[[], bool]
    """Whether this replica may still write; with leader election, only the leader may."""

    shards: HeldShards | None
    """The shards of this replica, if replicas share the work."""

    runner: Runner
    root: Path
    """The directory of the workspaces."""

    environment: Mapping[str, str]
    """Additional variables of runs."""

    discovery: SharedDiscovery | None
    metrics: OperatorMetrics
    events: EventRecorder
    recorder: Recorder | None
    tracer: "Tracer | None"
    pruning: set[GVK] = field(default_factory=set)
    """The kinds whose roles may prune."""

    shared: set[tuple[ObjectId, str]] = field(default_factory=set)
    """The objects that were made for a primary, named by its uid, and that runs of others have requested by name."""

    uids: set[str] = field(default_factory=set)
    """The uids of the primaries of all watches."""


class WatchController:
    """Reconciles the kind of one watch."""

    def __init__(self, watch: Watch, context: OperatorContext) -> None:
        settings, manager, shards = context.settings, context.manager, context.shards
        workers = watch.workers or settings.workers
        self.watch = watch
        self._manager = manager
        self._metrics = context.metrics.controller(watch.gvk, workers)
        self._dependent_fields = (STATUS_FIELDS,) if settings.follows_status_fields else ()
        backoff = Backoff(settings.backoff_min_seconds, settings.backoff_max_seconds)
        self._is_held: Callable[[ObjectKey], bool] = shards.accepts(watch.gvk) if shards else lambda _key: True
        self.queue: WorkQueue[ObjectKey] = WorkQueue(manager.clock, backoff, self._metrics, self._is_held)
        self._self_triggers = SelfTriggers(watch.gvk, context.own_writes)
        self.dependents: set[tuple[GVK, Ownership]] = set()
        """The kinds of dependents that runs have created, and how they name their primary."""
        self.primaries: Informer = manager.informer_for(watch.gvk)
        self.reads = ReadTriggers(
            watch=watch,
            find=self.primaries.store.get,
            queue=self.queue,
            self_triggers=self._self_triggers,
            record=context.events.record,
            watches=context.read_watches,
            clock=manager.clock,
        )
        self._second_operator = SecondOperator(watch.gvk)
        self._indexes = [self._follow(trigger) for trigger in watch.triggers]
        self.primaries.subscribe(self._on_primary, _WATCHED_ANNOTATIONS)
        self.primaries.on_restore = self._on_restore
        self._pruning, self._shared, self._uids = context.pruning, context.shared, context.uids
        self._look_for_prune()
        self.reconciler = self._make_reconciler(context)
        self.orphaned_workspaces = OrphanedWorkspaces(
            context.root, self.primaries, settings.namespaces, self.queue.is_processing, self.reconciler.forget
        )
        if shards is not None:
            request_scan = self.orphaned_workspaces.request_scan
            priority_of = partial(initial_priority, manages_status=watch.manage_status)
            sharded = ShardedPrimaries(watch, shards, self.queue, priority_of, request_scan, self._hand_over)
            self.primaries.subscribe(sharded.on_change)
            shards.kinds.append(sharded)
        reconcile = self.reconciler.reconcile
        self.controller = Controller(watch.gvk, self.queue, workers, reconcile, self._needs_no_run_now)

    def _make_reconciler(self, context: OperatorContext) -> Reconciler:
        settings, now = context.settings, context.manager.clock.now
        launcher = Launcher(
            watch=self.watch,
            settings=settings,
            runner=context.runner,
            root=context.root,
            client=context.manager.client,
            proxy=context.proxy,
            own_writes=context.own_writes,
            on_dependent=self._on_dependent_kind,
            lacks=context.manager.lacks,
            expect=self._expect,
            reads=self.reads.sets if self.watch.watch_reads else None,
            discovery=context.discovery,
            environment=context.environment,
            pruning=context.pruning,
        )
        known = self.primaries.store.get
        primaries = Primaries(context.manager.client, self.watch.gvk, context.own_writes, context.may_write, known)
        readiness = Readiness.of_watch(self.watch, default=settings.ready_conditions)

        def report(obj: RawObject, problem: str) -> None:
            self._metrics.status_rejected()
            context.events.record(obj, EventSpec(WARNING, "StatusRejected", problem))

        def may_delete(key: ObjectKey) -> bool:
            is_due_again = self.queue.is_due_again(key, lambda cause: not self._is_self_trigger(key, cause))
            return self._is_held(key) and not is_due_again

        pruner = Pruner(
            watch=self.watch,
            primaries=primaries,
            record_event=context.events.record,
            identity=f"{settings.leader_election_id or 'rolecall'}/{self.watch.content.path.stem}",
            may_delete=may_delete,
            shared=context.shared,
            uids=context.uids,
            pruning=context.pruning,
            count=self._metrics.pruned,
            clock=context.manager.clock,
        )
        return Reconciler(
            watch=self.watch,
            pruner=pruner,
            primaries=primaries,
            launcher=launcher,
            status=StatusWriter(
                primaries, readiness, report, settings.moves_changed_conditions, now, self._second_operator
            ),
            self_triggers=self._self_triggers,
            events=EventReporter(context.events.record),
            default_period_seconds=settings.reconcile_period_seconds,
            metrics=self._metrics,
            recorder=context.recorder,
            reads=self.reads,
            tracer=context.tracer,
        )

    def _hand_over(self, key: ObjectKey) -> None:
        """Drop what this replica knows about an object that another one reconciles from now on."""
        self.reads.forget(key)
        self._second_operator.forget(key)
        if self.reconciler.pruner is not None:
            self.reconciler.pruner.forget(key)

    def _note_uid(self, change: Change) -> None:
        """Forget a primary that is gone, and what others use of its objects: nothing is pruned for it now."""
        old, new = change.old, change.new
        if new is not None:
            self._uids.add(new.uid)
        if old is not None and (new is None or new.uid != old.uid):
            self._uids.discard(old.uid)
            self._shared.difference_update({each for each in self._shared if each[1] == old.uid})

    def _look_for_prune(self) -> None:
        if mentions(contents_of(self.watch), PRUNE_ACTION.encode()):
            self._pruning.add(self.watch.gvk)

    def content_changed(self) -> None:
        """Retry all failed objects soon, because the files of the role have changed."""
        self._look_for_prune()
        self.queue.retry_within(_CONTENT_RETRY_SECONDS, Cause("files of the role changed"))

    @property
    def _has_started(self) -> bool:
        """Whether reconciles have started; before that, all requests belong to the initial reconcile."""
        return self._manager.dispatcher.has_started

    def _on_primary(self, change: Change) -> None:
        key, old, new = change.key, change.old, change.new
        is_selected = new is not None and self.watch.selector.matches(new.labels)
        created = str(metadata_of(change.obj).get("creationTimestamp") or "") if is_selected else None
        self._metrics.set_created_at(key, created)
        self._note_uid(change)
        for index in self._indexes:
            if is_selected:
                index.update_primary(key, change.obj)
            else:
                index.remove_primary(key)
        # A late event mustn't undo what a run has read since: the later version starts no other run.
        if not is_selected and not self._self_triggers.was_read(key, change.entry.uid, change.entry.resource_version):
            self.reads.forget(key)
        is_initial = change.in_initial_list or not self._has_started
        manages_status = self.watch.manage_status
        priority = initial_priority(change.obj, manages_status=manages_status) if is_initial else Priority.HIGH
        is_relevant = primary_changed(change, self.watch, _WATCHED_ANNOTATIONS)
        is_requested = is_relevant or (is_selected and key in self.reconciler.rejected)
        if is_requested:
            changed_spec = old is not None and new is not None and old.generation != new.generation
            generation = f" (generation {new.generation})" if changed_spec and new is not None else ""
            cause = change.cause(change.reason + generation)
            primary = PrimaryCause(
                cause.text,
                cause.uid,
                cause.resource_version,
                cause.is_removal,
                changed_spec,
                is_relevant,
                priority=priority,
            )
            self._enqueue(key, primary)
        if not self._has_started:
            self.queue.lower(key, priority)  # an object that another replica has reconciled since isn't urgent
        if new is None and not (is_requested and self._has_started and self._is_held(key)):
            # No reconcile of this replica will find it deleted, and it must not remember everything that ever was.
            self.queue.discard_one(key)
            self.reconciler.forget(key)
            self.orphaned_workspaces.request_scan()

    def _on_restore(self) -> None:
        """Run every object again: the cluster was restored, so what past runs wrote and read may be lost."""
        self._self_triggers.forget_versions()
        self._second_operator.forget_all()
        for entry in self.primaries.store:
            if self.watch.selector.matches(entry.labels):
                self.queue.add(entry.key, Cause("the cluster was restored", priority=Priority.LOW))

    def _follow(self, trigger: Trigger) -> TriggerIndex:
        index = TriggerIndex(trigger, self.watch.gvk)

        def on_change(change: Change) -> None:
            for key, text in index.requests_for(change):
                self._enqueue(key, change.cause(text))

        self._manager.informer_for(trigger.gvk).subscribe(on_change, trigger.fields)
        return index

    def _on_dependent_kind(self, resource: ApiResource, ownership: Ownership) -> None:
        """Watch a kind of dependents from its first object on, until the operator stops."""
        gvk, watch = resource.gvk, self.watch
        if (gvk, ownership) in self.dependents:
            return
        self.dependents.add((gvk, ownership))
        # Other entries of watches.yaml don't matter here: a trigger on the same kind is another subscriber.
        is_excluded = not watch.watch_dependent_resources or gvk in watch.blacklist
        is_tied_by_name = ownership is Ownership.ANNOTATION and not resource.namespaced
        if is_excluded or (is_tied_by_name and not watch.watch_cluster_scoped_resources):
            logger.info("Not watching a kind of dependents", dependent=str(gvk), ownership=ownership.value)
            return
        logger.info("Watching child resource", gvk=str(watch.gvk), dependent=str(gvk), ownership=ownership.value)
        informer = self._manager.informer_for(gvk)
        primaries_of = requests_for_owner if ownership is Ownership.OWNER_REFERENCE else requests_for_annotation
        informer.subscribe(partial(self._on_dependent, primaries_of), self._dependent_fields)

    def _expect(self, obj: RawObject) -> None:
        """Let the first list of a kind show whether a dependent that a run has seen was changed or deleted since."""
        informer = self._manager.informers.get(GVK.of_object(obj))
        if informer is not None:
            informer.expect(obj)

    def _on_dependent(self, primaries_of: Callable[[Change, GVK], set[tuple[ObjectKey, str]]], change: Change) -> None:
        """Enqueue the primaries that a dependent names, if they exist and the selector matches them."""
        if not dependent_changed(change, self._dependent_fields):
            return
        for key, uid in sorted(primaries_of(change, self.watch.gvk)):
            entry = self.primaries.store.get(key)
            if entry is None or not self.watch.selector.matches(entry.labels):
                continue
            # A recreated primary may need an object deleted together with its predecessor.
            if change.new is None or uid in ("", entry.uid):
                cause = change.cause(f"dependent {change.reason}")
                version = cause.uid, cause.resource_version, cause.is_removal
                self._enqueue(key, DependentCause(cause.text, *version, priority=cause.priority))

    def _enqueue(self, key: ObjectKey, cause: Cause) -> None:
        if not self._has_started and not isinstance(cause, PrimaryCause):
            cause = replace(cause, priority=Priority.LOW)
        elif isinstance(cause, DependentCause):
            self.reads.on_change(key, cause)
            return
        # A cause that arrives during a run is judged at its end, when the responses to all its writes are known.
        if self.queue.is_processing(key) or not self._self_triggers.is_self_trigger(key, cause):
            self.queue.add(key, cause)

    def _needs_no_run_now(self, key: ObjectKey, cause: Cause) -> bool:
        """Return whether a cause that arrived during a run needs no further run immediately."""
        may_be_in_loop = isinstance(cause, DependentCause | ReadCause)
        return self._is_self_trigger(key, cause) or (may_be_in_loop and self.reads.postpone(key, cause))

    def _is_self_trigger(self, key: ObjectKey, cause: Cause) -> bool:
        """Return whether a cause that arrived during a run needs no further run."""
        if isinstance(cause, PrimaryCause) and not cause.is_relevant and key not in self.reconciler.rejected:
            return True  # it came while the object was being read, and the object can be run
        is_outdated = isinstance(cause, ReadCause) and not self.reads.sets.counts(key, cause)
        return is_outdated or self._self_triggers.is_self_trigger(key, cause)


def initial_priority(obj: RawObject, *, manages_status: bool) -> Priority:
    """Return the priority of a primary in the initial reconcile; LOW if its last run has dealt with its generation.

    ``manages_status`` is whether runs report a status.
    """
    if is_being_deleted(obj):
        return Priority.HIGH
    status = status_of(obj)
    running = own_condition(status, RUNNING) or {}
    # A failure leaves the reason of the run in place, with the status False.
    unfinished = (("True", IN_PROGRESS), ("False", INTERRUPTED))
    if manages_status and (running.get("status"), running.get("reason")) in unfinished:
        return Priority.HIGH
    observed = status.get("observedGeneration")
    if observed is not None:
        return Priority.LOW if observed == generation_of(obj) else Priority.HIGH
    # The schema of a CRD may drop the field, and the Go runner doesn't write it: then only a result is known.
    has_result = not manages_status or any(own_condition(status, kind) for kind in (SUCCESSFUL, FAILURE))
    return Priority.LOW if has_result else Priority.HIGH

"""Faults that are planted in the operator, to show that the simulation would find them.

Each mutant breaks one thing that a guarantee of docs/concepts/reliability.md, or the fix of a past fault, depends on.
``find_all`` plants one after the other and plays histories until one has a finding. A mutant that no history finds
within its time is a gap in the faults or oracles, not in the number of seeds.
"""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from unittest import mock

from rolecall.kube import client
from rolecall.kube.connection import read_event
from rolecall.kube.errors import ApiError, KubeError
from rolecall.kube.metadata import generation_of, status_of, without_finalizer
from rolecall.kube.references import ObjectKey
from rolecall.runner import watch_controller
from rolecall.runner.controller import informer
from rolecall.runner.controller.controller import Result
from rolecall.runner.controller.informer import Informer, Reflector
from rolecall.runner.controller.store import Entry
from rolecall.runner.controller.work_queue import WorkQueue
from rolecall.runner.election.elector import Elector
from rolecall.runner.proxy import server
from rolecall.runner.proxy.server import Proxy
from rolecall.runner.proxy.writes import Writes, removed_uids
from rolecall.runner.reconcile import reconciler, status_writer
from rolecall.runner.reconcile.context import ReconcileContext
from rolecall.runner.reconcile.reconciler import Reconciler
from rolecall.runner.reconcile.status_writer import Primaries, StatusWriter
from rolecall.runner.runs.launcher import Launcher
from rolecall.runner.runs.own_writes import OwnWrites, SelfTriggers
from rolecall.runner.runs.process import new_ident
from rolecall.runner.runs.run import Run
from rolecall.runner.serving.metrics import ControllerMetrics
from rolecall.runner.watch_controller import WatchController
from tests.simulation.history import Make, Options, play
from tests.simulation.user import SELECTED

LIMIT_SECONDS: Final = 60.0

Plant = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A planted fault; ``guarantee`` is the number in reliability.md, or the rule of prune."""

    guarantee: int | str
    plant: Plant
    options: Options = field(default_factory=Options)
    make: Make | None = None
    """Makes its histories."""


def replaced(owner: object, name: str, new: object) -> Plant:
    """Return what replaces an attribute."""
    return partial(mock.patch.object, owner, name, new)


def _drop_changes_during_runs(queue: WorkQueue[Any], request: Any, counts: object = None) -> None:  # noqa: ARG001
    queue._processing.pop(request)
    queue._retry_soon.pop(request, None)


def _add_while_processing(queue: WorkQueue[Any], request: Any, cause: Any) -> None:
    if queue._accepts(request):
        queue._enqueue(request, (cause,))


async def _write_once(write: Callable[[], Any]) -> Any:
    return await write()


_after_success = reconciler.after_success


def _without_requeue(context: Any, *, has_finalizer: bool) -> Result:
    found = _after_success(context, has_finalizer=has_finalizer)
    return Result() if context.outcome.requests_requeue else found


def _without_period(context: Any, *, has_finalizer: bool) -> Result:
    found = _after_success(context, has_finalizer=has_finalizer)
    return Result() if found.cause is not None and found.cause.text == "period" else found


_write_status_once = StatusWriter._write_once


async def _with_current_generation(
    writer: StatusWriter, primary: Any, update: Any, _generation: Any = None, **options: Any
) -> Any:
    return await _write_status_once(writer, primary, update, None, **options)


async def _read_whoever_has_the_name(primaries: Primaries, obj: Any) -> Any:
    return await primaries.client.get(primaries.gvk, ObjectKey.of_object(obj))


_save = Reconciler._save


async def _release_after_failures(self: Reconciler, context: Any) -> bool:
    if context.finalizing and not context.outcome.is_interrupted:
        await self._edit(context, lambda obj: without_finalizer(obj, context.finalizer))
    return await _save(self, context)


async def _without_interrupted_status(self: Reconciler, context: Any) -> bool:
    return True if context.outcome.is_interrupted else await _save(self, context)


_upsert = Informer._upsert


def _ignore_listed_updates(self: Informer, obj: Any) -> None:
    entry = Entry.of(obj, self._fields)
    if self.store.get(entry.key) is None:
        _upsert(self, entry, obj, from_watch=False)


_on_primary = WatchController._on_primary


def _only_new_generations(self: WatchController, change: Any) -> None:
    if change.in_initial_list and (status_of(change.obj) or {}).get("observedGeneration") == generation_of(change.obj):
        return
    _on_primary(self, change)


def _with_dry_runs(proxied: Any, result: Any) -> tuple[str, ...]:
    return removed_uids(replace(proxied, info=replace(proxied.info, is_dry_run=False)), result)


def _event_or_bookmark(line: bytes) -> Any:
    try:
        return read_event(line)
    except KubeError:
        return "BOOKMARK", {}


_set_created_at = ControllerMetrics.set_created_at


def _keep_created_at(self: ControllerMetrics, key: ObjectKey, timestamp: str | None) -> None:
    if timestamp is not None:
        _set_created_at(self, key, timestamp)


def _crash(*_: object) -> float:
    raise RuntimeError("planted")


async def _remove_nothing(*_: object) -> None:
    pass


async def _revoke_nothing(*_: object) -> None:
    pass


async def _never_restored(*_: object) -> bool:
    return False


class _NeverRaisedError(Exception):
    pass


@contextmanager
def _lost_cancellation() -> Iterator[None]:
    """Let a stop interrupt the task of a reconcile, not only its run."""

    async def reconcile(self: Reconciler, key: Any, causes: Any) -> Any:
        context = ReconcileContext(key, new_ident(), causes)
        return await self._reconcile_and_record(context)

    with mock.patch.object(Reconciler, "reconcile", reconcile):
        yield


@contextmanager
def _judged_once() -> Iterator[None]:
    """Let a run work with the version that the write of the finalizer or of the mark has returned."""
    judge, judged = Reconciler._judge, set()

    async def judge_once(self: Reconciler, context: ReconcileContext) -> Result | None:
        if context.ident in judged:
            return None
        judged.add(context.ident)
        return await judge(self, context)

    with mock.patch.multiple(Reconciler, _judge=judge_once, _fate=lambda *_: None):
        yield


class _NothingRejected(set[ObjectKey]):
    def add(self, element: ObjectKey) -> None:
        pass


_init = Reconciler.__init__


def _without_rejected(self: Reconciler, *args: Any, **options: Any) -> None:
    _init(self, *args, **options)
    self.rejected = _NothingRejected()


@contextmanager
def _forgotten_by_reconciles_only() -> Iterator[None]:
    """Let only a reconcile that finds its object deleted drop the state of it."""
    forget, clean_up = Reconciler.forget, Reconciler._clean_up

    async def clean(self: Reconciler, key: ObjectKey) -> Result:
        forget(self, key)
        return await clean_up(self, key)

    with mock.patch.multiple(Reconciler, _clean_up=clean, forget=lambda *_: None):
        yield


_inject = Writes._inject


async def _inject_if_listed(self: Writes, request: Any) -> bool:
    """Write an object of a kind that discovery doesn't list, as it is."""
    try:
        return await _inject(self, request)
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return False
        raise


_expect = Informer.expect


def _expect_only_first(self: Informer, obj: Any) -> None:
    if self._awaits_list_of(ObjectKey.of_object(obj).namespace):
        _expect(self, obj)


async def _read_once(self: Primaries, key: ObjectKey, _seen: str = "") -> Any:
    return await self.client.get(self.gvk, key)


async def _read_whatever(_info: object, response: Any, _worker: object) -> bytes:
    found: bytes = await response.read()
    return found


_TWO: Final = Options(replicas=2)

MUTANTS: Final[dict[str, Mutant]] = {
    "change-during-run-is-lost": Mutant(1, replaced(WorkQueue, "done", _drop_changes_during_runs)),
    "failure-is-not-retried": Mutant(1, replaced(WorkQueue, "add_rate_limited", lambda *_: 0.0)),
    "requeue-is-lost": Mutant(1, replaced(reconciler, "after_success", _without_requeue)),
    "period-is-lost": Mutant(1, replaced(reconciler, "after_success", _without_period)),
    "every-write-counts-as-own": Mutant(1, replaced(OwnWrites, "contains", lambda *_: True)),
    "own-writes-trigger": Mutant(1, replaced(SelfTriggers, "is_self_trigger", lambda *_: False)),
    "list-drops-deletions": Mutant(1, replaced(Informer, "_remove", lambda *_: None)),
    "list-drops-updates": Mutant(1, replaced(Informer, "on_listed", _ignore_listed_updates)),
    "expiry-is-not-listed-again": Mutant(1, replaced(informer, "GoneError", _NeverRaisedError)),
    "restore-of-the-cluster-is-not-noticed": Mutant(1, replaced(Reflector, "_is_restored", _never_restored)),
    "dependents-are-not-watched": Mutant(1, replaced(WatchController, "_on_dependent_kind", lambda *_: None)),
    "first-list-is-not-compared": Mutant(1, replaced(Informer, "expect", lambda *_: None)),
    "a-dry-run-counts-as-a-deletion": Mutant(1, replaced(server, "removed_uids", _with_dry_runs)),
    "unreadable-events-are-skipped": Mutant(1, replaced(client, "read_event", _event_or_bookmark)),
    "reads-are-not-followed": Mutant(1, replaced(Run, "reading", lambda *_: None)),
    "a-404-forgets-an-object": Mutant(1, replaced(Reconciler, "_is_known", lambda *_: False)),
    "annotations-are-not-watched": Mutant(1, replaced(watch_controller, "_WATCHED_ANNOTATIONS", ())),
    "outdated-objects-run": Mutant(1, replaced(Primaries, "read", _read_once)),
    "selector-is-judged-at-the-request": Mutant(1, replaced(reconciler, "labels_of", lambda _: SELECTED)),
    "later-versions-are-not-judged": Mutant(1, _judged_once),
    "changes-of-rejected-objects-are-lost": Mutant(
        1, replaced(Reconciler, "__init__", _without_rejected), Options(often="_toggle_briefly")
    ),
    "reads-of-hidden-kinds-are-not-followed": Mutant(
        1, replaced(server, "read_unserved", _read_whatever), Options(often="_hide_kinds")
    ),
    "objects-of-hidden-kinds-have-no-owner": Mutant(
        1, replaced(Writes, "_inject", _inject_if_listed), Options(often="_hide_kinds")
    ),
    "an-expired-watch-hides-deletions": Mutant(
        1, replaced(Informer, "expect", _expect_only_first), Options(often="_delete_what_is_made_unseen")
    ),
    "paused-objects-run": Mutant(1, replaced(reconciler, "is_paused", lambda _: False)),
    "status-write-is-not-retried": Mutant(1, replaced(status_writer, "write_with_retry", _write_once)),
    "interrupted-runs-are-not-repeated": Mutant(4, replaced(WatchController, "_on_primary", _only_new_generations)),
    "rejected-status-is-not-reduced": Mutant(2, replaced(status_writer, "_rejects_values", lambda _: False)),
    "status-has-another-generation": Mutant(2, replaced(StatusWriter, "_write_once", _with_current_generation)),
    "status-of-a-recreated-object": Mutant(2, replaced(Primaries, "read_again", _read_whoever_has_the_name)),
    "interruption-is-not-reported": Mutant(2, replaced(Reconciler, "_save", _without_interrupted_status)),
    "stop-ends-the-whole-reconcile": Mutant(2, _lost_cancellation),
    "runs-overlap": Mutant(3, replaced(WorkQueue, "add", _add_while_processing)),
    "lease-is-always-free": Mutant(3, replaced(Elector, "_may_take", lambda *_: True), _TWO),
    "lease-is-never-taken": Mutant(3, replaced(Elector, "_may_take", lambda *_: False), _TWO),
    "writes-outlive-their-run": Mutant(3, replaced(Proxy, "revoke", _revoke_nothing)),
    "finalizer-is-not-added": Mutant(5, replaced(reconciler, "with_finalizer", lambda obj, *_: obj)),
    "finalizer-goes-after-a-failure": Mutant(5, replaced(Reconciler, "_save", _release_after_failures)),
    "a-failed-watch-ends-the-operator": Mutant(6, replaced(informer.WatchRetry, "delay_after_failure", _crash)),
    "deleted-objects-are-remembered": Mutant(8, replaced(Reconciler, "forget", lambda *_: None)),
    "unselected-objects-are-remembered": Mutant(8, _forgotten_by_reconciles_only, _TWO),
    "followers-remember-deleted-objects": Mutant(8, replaced(WorkQueue, "discard_one", lambda *_: None), _TWO),
    "metrics-keep-deleted-objects": Mutant(8, replaced(ControllerMetrics, "set_created_at", _keep_created_at)),
    "workspaces-remain": Mutant(7, replaced(Launcher, "remove_workspace", _remove_nothing)),
}


Lookup = Callable[[str], Mutant]


def find_all(root: Path, jobs: int, names: Sequence[str], mutant_of: Lookup) -> int:
    """Plant each mutant, print what has found it, and return the exit code: 1 if one wasn't found.

    ``mutant_of`` is a function of a module, which each process calls.
    """
    missed = 0
    with ProcessPoolExecutor(jobs) as pool:
        for name in names:
            line, is_found = _find(pool, partial(_findings, mutant_of, root, name), jobs)
            missed += not is_found
            print(f"{name} (guarantee {mutant_of(name).guarantee}): {line}", flush=True)
    print(f"{len(names) - missed} of {len(names)} mutants found")
    return 1 if missed else 0


def _find(pool: ProcessPoolExecutor, findings_of: Callable[[int], list[str]], jobs: int) -> tuple[str, bool]:
    """Play histories with a mutant until one has a finding; return a line about it, and whether there was one."""
    started = time.perf_counter()
    waiting: deque[tuple[int, Future[list[str]]]] = deque()
    for seed in itertools.count(1):
        waiting.append((seed, pool.submit(findings_of, seed)))
        if len(waiting) <= 2 * jobs:  # as many as keep all processes busy
            continue
        played, future = waiting.popleft()
        findings, seconds = future.result(), time.perf_counter() - started
        if findings or seconds >= LIMIT_SECONDS:
            break
    for _, future in waiting:
        future.cancel()
    if findings and seconds < LIMIT_SECONDS:
        return f"seed {played} after {seconds:.1f} s: {findings[0][:200]}", True
    return f"NOT FOUND by {played} histories in {seconds:.0f} s", False


def _findings(mutant_of: Lookup, root: Path, name: str, seed: int) -> list[str]:
    """Return the findings of a history with a mutant."""
    mutant = mutant_of(name)
    with mutant.plant():
        try:
            return play(seed, root / f"{name}-{seed}", mutant.options, mutant.make).findings
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - a history that can't go on is a finding
            return [repr(error)]


def mutant_of(name: str) -> Mutant:
    """Return the mutant with a name."""
    return MUTANTS[name]

"""Runs the role or playbook of one object: ``Launcher.run`` is the way from the object to the outcome.

It checks the object's size, writes variables and inventory into the workspace, gives the run access to the API server,
and logs the run's events as ``--ansible-log-events`` requests. A run that can't be prepared results in an outcome with
a failure, like a run that fails later. If the object is the cause, the failure is final: only another object helps.

A log line never has arguments of tasks, nor anything of a result that ``no_log`` hides. The recap is always logged.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rolecall.kube.client import Client
from rolecall.kube.errors import KubeError
from rolecall.kube.json_values import all_values
from rolecall.kube.metadata import annotation_of, spec_of, uid_of
from rolecall.kube.quantities import format_duration
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.content import PlaybookContent, validated_options
from rolecall.runner.config.settings import HIGHEST_VERBOSITY, LogEvents, Settings, parse_integer
from rolecall.runner.config.watches import Watch
from rolecall.runner.proxy.ownership import Owner
from rolecall.runner.proxy.server import Proxy
from rolecall.runner.prune.inventory import INVENTORY_ANNOTATION
from rolecall.runner.prune.observations import Observations
from rolecall.runner.reads.read_sets import ReadSets
from rolecall.runner.runs.events import DEBUG_ACTIONS, RunEvent, cut, strip_colors
from rolecall.runner.runs.outcome import Outcome
from rolecall.runner.runs.own_writes import OwnWrites
from rolecall.runner.runs.process import Runner, RunSpec, grace_seconds
from rolecall.runner.runs.run import Lacks, OnDependent, Run, RunListener, credentials
from rolecall.runner.runs.shared_discovery import SharedDiscovery
from rolecall.runner.runs.variables import check_nesting, declared_part, extra_vars
from rolecall.runner.runs.workspace import Workspace
from rolecall.system.blocking_work import run_in_thread
from rolecall.system.logs import get_logger

logger = get_logger("run")

VERBOSITY_ANNOTATION = "ansible.sdk.operatorframework.io/verbosity"
ARTIFACTS_ANNOTATION = "ansible.sdk.operatorframework.io/max-runner-artifacts"
MAX_KEPT_RUNS = 100
"""How many runs an object can ask to keep; only its watch can keep all."""

_QUIET_ACTIONS = DEBUG_ACTIONS | {"set_fact", "ansible.builtin.set_fact", "ansible.legacy.set_fact"}
_TASK_STARTED = ("playbook_on_task_start", "playbook_on_handler_task_start")
_RESULTS = {"runner_on_ok": "ok", "runner_on_skipped": "skipped"}
_WITH_TASKS = (LogEvents.TASKS, LogEvents.RESULTS)
_Shape = tuple[str, str, dict[str, str]]  # level, message, and the fields of the event with their names in the log
_STARTED: _Shape = ("info", "Task started", {"full_name": "full_name", "action": "action"})
_EVENT: _Shape = (
    "info",
    "Ansible event",
    {"name": "event_type", "item": "item", "message": "result", "stdout": "stdout"},
)
_OUTPUT: _Shape = ("info", "Ansible event", {"name": "event_type", "stdout": "stdout"})
_RECAP: _Shape = ("info", "Recap", {"stdout": "stdout"})
_MESSAGE: _Shape = ("info", "Task message", {"item": "item", "message": "message"})
_IGNORED: _Shape = ("info", "Task failed (ignored)", {"message": "reason"})
_SHAPES: dict[str, _Shape] = {
    **dict.fromkeys(_TASK_STARTED, _STARTED),
    "runner_item_on_ok": ("info", "Item done", {"item": "item", "changed": "changed"}),
    "runner_item_on_failed": ("error", "Item failed", {"item": "item", "message": "reason"}),
    "runner_on_failed": ("error", "Task failed", {"message": "reason", "task_path": "path"}),
    "runner_on_unreachable": ("error", "Host unreachable", {"message": "reason"}),
}


@dataclass(frozen=True, slots=True)
class Launcher:
    """Runs the role or playbook of one watch.

    ``root`` is the directory of the workspaces, ``environment`` has further variables of every run, and ``discovery``
    is that of the same API server. ``own_writes``, ``on_dependent``, and ``reads`` receive what runs do;
    ``lacks`` tells runs which primaries don't exist, and ``expect`` receives the dependents that runs have seen.
    """

    watch: Watch
    settings: Settings
    runner: Runner
    root: Path
    client: Client
    proxy: Proxy
    own_writes: OwnWrites
    on_dependent: OnDependent
    lacks: Lacks = lambda _kind, _key: False
    expect: Callable[[RawObject], None] = lambda _obj: None
    reads: ReadSets | None = None
    discovery: SharedDiscovery | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    pruning: AbstractSet[GVK] = frozenset()
    """The kinds whose roles may prune."""

    async def run(
        self,
        obj: RawObject,
        ident: str,
        *,
        finalizing: bool,
        record: RunListener | None = None,
        observations: Observations | None = None,
    ) -> Outcome:
        """Run for the object as it was read and return the outcome. Raises nothing but CancelledError.

        ``observations`` receive what the run names, also if it doesn't end.
        """
        watch, settings = self.watch, self.settings
        own_timeout = watch.timeout_seconds
        default_verbosity = settings.verbosity if watch.verbosity is None else watch.verbosity
        log_events = self._log_events(obj)

        def on_event(event: RunEvent) -> None:
            if line := log_line(event, log_events):
                level, message, fields = line
                getattr(logger, level)(message, gvk=str(watch.gvk), **{"event_type": event.name, **fields})
            if record:
                record.on_event(event)

        workspace = self._workspace(obj)
        try:
            variables, left_out = await run_in_thread(lambda: self._variables(obj, finalizing=finalizing))
        except (ValueError, RecursionError) as error:
            logger.error("Failed to prepare the run", error=str(error))  # noqa: TRY400 - the object is the cause
            return Outcome.of_failure(f"Unable to run reconciliation: {error}", is_final=True)
        try:
            playbook = watch.content.path if isinstance(watch.content, PlaybookContent) else None
            await run_in_thread(lambda: workspace.prepare(ident, variables, settings.ansible_args, playbook))
            run = await self._run_of(obj, ident, record, observations or Observations())
            directory = settings.kubeconfig_directory or self.root
            async with credentials(self.proxy, run, directory, self.environment) as environment:
                spec = RunSpec(
                    ident=ident,
                    workspace=workspace,
                    content=watch.content_for(finalizing=finalizing),
                    environment=environment,
                    verbosity=min(_integer(obj, VERBOSITY_ANNOTATION, default_verbosity), HIGHEST_VERBOSITY),
                    timeout_seconds=(settings.run_timeout_seconds if own_timeout is None else own_timeout) or None,
                    grace_seconds=grace_seconds(settings),
                    unreachable_ok=settings.unreachable_ok,
                    output_in_events=settings.output_in_events,
                )
                outcome = await self.runner.run(spec, on_event)
            if settings.debug_logs:
                output = await run_in_thread(lambda: _printed(workspace, ident))
                logger.info("Output of the run", gvk=str(watch.gvk), stdout=output)
        except (OSError, ValueError, KubeError) as error:
            logger.exception("Failed to start the run")
            return Outcome.of_failure(f"Unable to run reconciliation: {error}")
        if settings.ignores_zero_requeue and outcome.requeue_after_seconds == 0:
            outcome = replace(outcome, requeue_after_seconds=None)
        if outcome.is_successful:
            logger.info("Run succeeded")
        own = str(workspace.path)  # with the play that runs a role, and copies of a playbook and of the inventory
        files = tuple(path for path in outcome.task_files if not path.startswith(own))
        return replace(outcome, left_out=left_out, task_files=files)

    async def _run_of(self, obj: RawObject, ident: str, record: RunListener | None, observations: Observations) -> Run:
        key, gvk = ObjectKey.of_object(obj), self.watch.gvk
        owner = Owner(gvk, key, uid_of(obj), (await self.client.resource(gvk)).namespaced)
        prunes = gvk in self.pruning
        return Run(
            id=ident,
            owner=owner,
            inject_owner=self.settings.inject_owner_reference,
            is_recorded=record is not None,
            observes_reads=self.reads is not None,
            follows_waiting=prunes or annotation_of(obj, INVENTORY_ANNOTATION) is not None,
            prunes=prunes,
            new_traceparent=None if record is None else record.new_traceparent,
            own_writes=self.own_writes,
            on_dependent=self.on_dependent,
            lacks=self.lacks,
            expect=self.expect,
            record=record,
            reads=None if self.reads is None else self.reads.start(owner),
            discovery=None if self.discovery is None else await self.discovery.for_run(),
            observations=observations,
        )

    async def remove_workspace(self, key: ObjectKey) -> None:
        """Remove what the runs of a deleted object left on disk. Raises OSError if some of it remains."""
        await run_in_thread(Workspace(self.root, self.watch.gvk, key).remove)

    def _workspace(self, obj: RawObject) -> Workspace:
        keep = default = self.watch.max_runner_artifacts
        if (requested := _integer(obj, ARTIFACTS_ANNOTATION, default)) != default:
            keep = min(requested, MAX_KEPT_RUNS) if requested > 0 else MAX_KEPT_RUNS
        return Workspace(self.root, self.watch.gvk, ObjectKey.of_object(obj), keep)

    def _variables(self, obj: RawObject, *, finalizing: bool) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return the variables of a run, and the fields of the spec that are left out because the role lacks them."""
        watch, settings = self.watch, self.settings
        check_size(obj, settings.max_object_values)
        check_nesting(obj)
        part: dict[str, Any] = spec_of(obj)
        left_out: tuple[str, ...] = ()
        if settings.drops_unknown_options:
            options = validated_options(watch.content_for(finalizing=finalizing))
            part, left_out = declared_part(part, options, snake_case_names=watch.snake_case_parameters)
        found = extra_vars(obj, watch, finalizing=finalizing, mark_unsafe=settings.mark_unsafe, part=part)
        return found, left_out

    def _log_events(self, obj: RawObject) -> LogEvents:
        """Return the events to log; a verbosity of the object or of ANSIBLE_VERBOSITY includes the output of tasks."""
        configured = LogEvents(self.settings.log_events)
        is_verbose = _integer(obj, VERBOSITY_ANNOTATION, self.settings.output_verbosity) > 0
        return LogEvents.OUTPUT if is_verbose and configured in _WITH_TASKS else configured


def _printed(workspace: Workspace, ident: str) -> str:
    """Return the output of a run without colors; empty if it left none."""
    try:
        text = (workspace.artifacts(ident) / "stdout").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    return strip_colors(text)


def _integer(obj: RawObject, annotation: str, default: int) -> int:
    """Return the number in an annotation; an invalid one is logged and ignored, as in the Go runner."""
    text = annotation_of(obj, annotation)
    if text is None:
        return default
    number = parse_integer(text)
    if number is None:
        logger.info("Ignoring an annotation without an integer", annotation=annotation, value=cut(text, 64))
        return default
    return number


def check_size(obj: RawObject, limit: int) -> None:
    """Raise ValueError if an object has more than ``limit`` values, 0 for no limit.

    Ansible needs about 4.5 KiB of memory for each value of a spec, which a run receives three times, no matter how
    small the value is: an object of one megabyte may hold 250,000 of them. Long strings cost little, and the API server
    limits them. Values are scalars, lists, and mappings, at any depth. ``managedFields`` don't count, because they have
    as many as the rest and users don't write them.
    """
    managed = obj.get("metadata", {}).get("managedFields")
    found = count_values(obj) - (0 if managed is None else count_values(managed))
    if found > limit > 0:
        raise ValueError(
            f"the object has {found:,} values, and a run takes at most {limit:,}: make the object smaller, for example "
            "by moving data into a ConfigMap, or raise --max-object-values"
        )


def count_values(value: Any) -> int:
    """Return the number of values in a JSON value, including itself, at any depth."""
    return sum(1 for _ in all_values(value))


def log_line(event: RunEvent, log_events: LogEvents) -> tuple[str, str, dict[str, Any]] | None:
    """Return level, message, and fields of the line for an event; None if the event isn't logged."""
    is_debug = event.action in DEBUG_ACTIONS and event.name in ("runner_on_ok", "runner_item_on_ok")
    if log_events is LogEvents.RESULTS and event.name in _RESULTS and not is_debug:
        return _result_line(event)
    shape: _Shape | None = None
    if event.name == "playbook_on_stats":
        shape = _RECAP
    elif log_events is LogEvents.EVERYTHING:
        shape = _EVENT
    elif log_events is LogEvents.OUTPUT and event.task and event.stdout:
        shape = _OUTPUT
    elif log_events in _WITH_TASKS:
        shape = _shape_of_task(event, log_events, is_debug=is_debug)
    if shape is None:
        return None
    level, message, names = shape
    values = {shown: getattr(event, name) for name, shown in {"task": "task", "host": "host", **names}.items()}
    return level, message, {shown: value for shown, value in values.items() if value != ""}


def _shape_of_task(event: RunEvent, log_events: LogEvents, *, is_debug: bool) -> _Shape | None:
    if is_debug:
        return _MESSAGE if event.message else None
    if event.ignored and event.name == "runner_on_failed":
        return _IGNORED
    if event.name in _TASK_STARTED and (log_events is LogEvents.RESULTS or event.action in _QUIET_ACTIONS):
        return None
    return _SHAPES.get(event.name)


def _result_line(event: RunEvent) -> tuple[str, str, dict[str, Any]] | None:
    """Return the line for the end of a task."""
    if event.action in _QUIET_ACTIONS:
        return None
    result = "changed" if event.changed else _RESULTS[event.name]
    fields = {"task": event.task, "result": result, "duration": format_duration(event.duration_seconds)}
    return "info", "Task ended", fields

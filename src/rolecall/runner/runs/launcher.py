"""Launches the run of one object: prepares its variables, its workspace and its access to the API server.

A run that cannot be prepared results in a summary with a failure, like a run that fails later.

Which events of a run become log lines, and what the lines say: ``--ansible-log-events``.

A line is a level, a constant message and fields; the caller adds the object and the run. Arguments of tasks never
appear, and neither does anything of a result that ``no_log`` hides. The recap at the end of a play is always logged.

The limit for the size of an object whose role runs.

Ansible needs about 4.5 KiB of memory for each value of a spec, which a run gets three times, however small the value
is: an object of one megabyte may hold 250,000 of them. Long strings cost little, and the API server limits them.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from rolecall.kube.errors import KubeError
from rolecall.kube.metadata import annotation_of
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.config.content import PlaybookContent
from rolecall.runner.config.environment import HIGHEST_VERBOSITY, parse_integer
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import Watch
from rolecall.runner.runs.api_access import ApiAccess, RequestListener
from rolecall.runner.runs.events import DEBUG_ACTIONS, RunEvent, RunSummary, strip_colours
from rolecall.runner.runs.process import OnEvent, Runner, RunSpec, grace_seconds
from rolecall.runner.runs.variables import ExtraVarsRequest, extra_vars
from rolecall.runner.runs.workspace import Inputs, Workspace
from rolecall.system.blocking_work import run_in_thread
from rolecall.system.logs import get_logger

_QUIET_ACTIONS = DEBUG_ACTIONS | {"set_fact", "ansible.builtin.set_fact", "ansible.legacy.set_fact"}


class LogEvents(StrEnum):
    """How much of a run is logged; with OUTPUT it is what each task prints instead of its result."""

    NOTHING = "nothing"
    TASKS = "tasks"
    OUTPUT = "output"
    EVERYTHING = "everything"


@dataclass(frozen=True, slots=True)
class LogLine:
    """One log line: ``level`` is info or error; fields without a value are left out."""

    level: str
    message: str
    fields: dict[str, Any] = field(default_factory=dict)


_Shape = tuple[str, str, dict[str, str]]  # level, message, and which field of the event appears under which name

_STARTED: _Shape = ("info", "Task started", {"full_name": "full_name", "action": "action"})
_SAID: _Shape = ("info", "Task said", {"item": "item", "message": "said"})
_IGNORED: _Shape = ("info", "Task failed (ignored)", {"message": "reason"})
_ANY: _Shape = (
    "info",
    "Ansible event",
    {"name": "event_type", "item": "item", "message": "result", "stdout": "stdout"},
)
_RECAP: _Shape = ("info", "Recap", {"stdout": "stdout"})
_OUTPUT: _Shape = ("info", "Ansible event", {"name": "event_type", "stdout": "stdout"})
_SHAPES: dict[str, _Shape] = {
    "playbook_on_task_start": _STARTED,
    "playbook_on_handler_task_start": _STARTED,
    "runner_item_on_ok": ("info", "Item done", {"item": "item", "changed": "changed"}),
    "runner_item_on_failed": ("error", "Item failed", {"item": "item", "message": "reason"}),
    "runner_on_failed": ("error", "Task failed", {"message": "reason", "task_path": "path"}),
    "runner_on_unreachable": ("error", "Host unreachable", {"message": "reason"}),
}


def log_line(event: RunEvent, wanted: LogEvents) -> LogLine | None:
    """Return the line for an event, or None if the event is not logged."""
    shape = _RECAP if event.name == "playbook_on_stats" else _shape(event, wanted)
    if shape is None:
        return None
    level, message, names = shape
    values = {shown: getattr(event, name) for name, shown in {"task": "task", "host": "host", **names}.items()}
    return LogLine(level, message, {shown: value for shown, value in values.items() if value != ""})


def _shape(event: RunEvent, wanted: LogEvents) -> _Shape | None:
    if wanted is LogEvents.EVERYTHING:
        return _ANY
    if wanted is LogEvents.OUTPUT:
        return _OUTPUT if event.task and event.stdout else None
    return _task_shape(event) if wanted is LogEvents.TASKS else None


def _task_shape(event: RunEvent) -> _Shape | None:
    if event.action in DEBUG_ACTIONS and event.name in ("runner_on_ok", "runner_item_on_ok"):
        return _SAID if event.message else None
    if event.action in _QUIET_ACTIONS and event.name in ("playbook_on_task_start", "playbook_on_handler_task_start"):
        return None
    if event.ignored and event.name == "runner_on_failed":
        return _IGNORED
    return _SHAPES.get(event.name)


def check_size(obj: RawObject, limit: int) -> None:
    """Raise ValueError if an object has more than ``limit`` values, 0 for no limit.

    Values are strings, numbers and so on, lists and mappings, at any depth. ``managedFields`` do not count, for they
    have as many as the rest and nobody writes them.
    """
    managed = obj.get("metadata", {}).get("managedFields")
    found = count_values(obj) - (0 if managed is None else count_values(managed))
    if found > limit > 0:
        raise ValueError(
            f"the object has {found:,} values, and a run takes at most {limit:,}: make the object smaller, for example "
            "by moving data into a ConfigMap, or raise --max-object-values"
        )


def count_values(value: Any) -> int:
    """Return the number of values in a JSON value, itself included, however deeply they are nested."""
    found, left = 0, [value]
    while left:
        each = left.pop()
        found += 1
        if isinstance(each, dict):
            left.extend(each.values())
        elif isinstance(each, list):
            left.extend(each)
    return found


logger = get_logger("run")
VERBOSITY_ANNOTATION = "ansible.sdk.operatorframework.io/verbosity"
ARTIFACTS_ANNOTATION = "ansible.sdk.operatorframework.io/max-runner-artifacts"
MOST_KEPT_RUNS = 100
"""How many runs an object can ask to be kept; only its watch may keep all."""


class RunListener(RequestListener, Protocol):
    """Is told what one run does; must return at once."""

    def on_event(self, event: RunEvent) -> None:
        """Take note of an event of Ansible."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """Launches the role or playbook of one watch; ``root`` is the directory of the workspaces."""

    watch: Watch
    runner: Runner
    access: ApiAccess
    settings: Settings
    root: Path

    async def run(
        self, obj: RawObject, ident: str, *, finalizing: bool, listener: RunListener | None = None
    ) -> RunSummary:
        """Run for the object as it was read and return the summary. Raises nothing but CancelledError."""
        workspace = self._workspace(obj)
        try:
            await run_in_thread(lambda: workspace.prepare(ident, self._inputs(obj, finalizing=finalizing)))
            async with self.access.open(self.watch.gvk, obj, ident, listener) as credentials:
                spec = RunSpec(
                    ident=ident,
                    workspace=workspace,
                    content=self.watch.content_for(finalizing=finalizing),
                    verbosity=self._verbosity(obj),
                    output_in_events=self.settings.output_in_events,
                    environment=credentials.environment,
                    secret_environment=credentials.secret_environment,
                    revoke=credentials.revoke,
                    discovery=credentials.discovery,
                    timeout_seconds=self._timeout_seconds,
                    unreachable_ok=self.settings.unreachable_ok,
                    grace_seconds=grace_seconds(self.settings),
                )
                on_event = self._logging(obj)
                summary = await self.runner.run(spec, _each(on_event, listener.on_event) if listener else on_event)
                await self._log_end(spec, summary)
        except (OSError, ValueError, KubeError) as error:
            logger.exception("Could not start the run")
            return _not_started(error)
        except RecursionError as error:  # a spec of a thousand levels, whose traceback helps nobody
            logger.error("Could not start the run", error=str(error))  # noqa: TRY400
            return _not_started(error)
        return summary

    async def remove_workspace(self, key: ObjectKey) -> None:
        """Remove what the runs of a deleted object left on disk. Raises OSError if some of it stays."""
        await run_in_thread(Workspace(self.root, self.watch.gvk, key).remove)

    def _workspace(self, obj: RawObject) -> Workspace:
        keep = default = self.watch.max_runner_artifacts
        if (asked := _integer_annotation(obj, ARTIFACTS_ANNOTATION, default)) != default:
            keep = min(asked, MOST_KEPT_RUNS) if asked > 0 else MOST_KEPT_RUNS
        return Workspace(self.root, self.watch.gvk, ObjectKey.of_object(obj), keep)

    @property
    def _timeout_seconds(self) -> float | None:
        own = self.watch.timeout_seconds
        return (self.settings.run_timeout_seconds if own is None else own) or None

    def _verbosity(self, obj: RawObject) -> int:
        """Return how many -v the run gets: from the object, the environment for its kind, or the flag."""
        default = self.settings.verbosity if self.watch.verbosity is None else self.watch.verbosity
        return min(_integer_annotation(obj, VERBOSITY_ANNOTATION, default), HIGHEST_VERBOSITY)

    def _inputs(self, obj: RawObject, *, finalizing: bool) -> Inputs:
        watch = self.watch
        check_size(obj, self.settings.max_object_values)
        variables = extra_vars(
            ExtraVarsRequest(
                obj=obj,
                gvk=watch.gvk,
                snake_case=watch.snake_case_parameters,
                mark_unsafe=self.settings.mark_unsafe if watch.mark_unsafe is None else watch.mark_unsafe,
                watch_vars=watch.variables,
                allowed=watch.allow_variables,
                declared=watch.declared_for(finalizing=finalizing),
                finalizer_vars=watch.finalizer.variables if finalizing and watch.finalizer else None,
            )
        )
        content = watch.content
        playbook = content.path if isinstance(content, PlaybookContent) else None
        return Inputs(variables, cmdline=self.settings.ansible_args, playbook=playbook)

    def _logging(self, obj: RawObject) -> OnEvent:
        """Return a callback that logs the events of a run for the object."""
        gvk, wanted = str(self.watch.gvk), self._wanted_events(obj)

        def log(event: RunEvent) -> None:
            line = log_line(event, wanted)
            if line is not None:
                getattr(logger, line.level)(line.message, gvk=gvk, **{"event_type": event.name, **line.fields})

        return log

    def _wanted_events(self, obj: RawObject) -> LogEvents:
        """Return what to log; a verbosity from the object or from ANSIBLE_VERBOSITY includes the output of tasks."""
        wanted = LogEvents(self.settings.log_events)
        is_verbose = _integer_annotation(obj, VERBOSITY_ANNOTATION, self.settings.output_verbosity) > 0
        return LogEvents.OUTPUT if is_verbose and wanted is LogEvents.TASKS else wanted

    async def _log_end(self, spec: RunSpec, summary: RunSummary) -> None:
        if self.settings.debug_logs:
            output = await run_in_thread(lambda: _output_of(spec))
            logger.info("Output of the run", gvk=str(self.watch.gvk), stdout=output)
        if summary.is_successful:
            logger.info("Play succeeded")


def _each(first: OnEvent, second: OnEvent) -> OnEvent:
    def on_event(event: RunEvent) -> None:
        first(event)
        second(event)

    return on_event


def _output_of(spec: RunSpec) -> str:
    """Return the output of a run without colours; empty if it left none."""
    try:
        text = (spec.workspace.artifacts(spec.ident) / "stdout").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    return strip_colours(text)


def _not_started(error: Exception) -> RunSummary:
    return RunSummary.of_failure(f"Unable to run reconciliation: {error}")


def _integer_annotation(obj: RawObject, name: str, default: int) -> int:
    """Return the number in an annotation; an invalid one is logged and ignored, as in the Go runner."""
    text = annotation_of(obj, name)
    if text is None:
        return default
    number = parse_integer(text)
    if number is None:
        logger.info("Ignoring an annotation that is not a whole number", annotation=name, value=text)
        return default
    return number

"""Launches the run of one object: prepares its variables, its workspace and its access to the API server.

A run that cannot be prepared results in a summary with a failure, like a run that fails later.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rolecall.kube.errors import KubeError
from rolecall.kube.metadata import annotation_of
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.config.content import PlaybookContent
from rolecall.runner.config.environment import HIGHEST_VERBOSITY, parse_integer
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import Watch
from rolecall.runner.runs.api_access import ApiAccess, RequestListener
from rolecall.runner.runs.events import RunEvent, RunSummary, strip_colours
from rolecall.runner.runs.extra_vars import ExtraVarsRequest, extra_vars
from rolecall.runner.runs.log_lines import LogEvents, log_line
from rolecall.runner.runs.object_size import check_size
from rolecall.runner.runs.runner import OnEvent, Runner, RunSpec
from rolecall.runner.runs.termination import grace_seconds
from rolecall.runner.runs.workspace import Inputs, Workspace
from rolecall.system.blocking_work import in_thread
from rolecall.system.logs import get_logger

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
            await in_thread(lambda: workspace.prepare(ident, self._inputs(obj, finalizing=finalizing)))
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
        await in_thread(Workspace(self.root, self.watch.gvk, key).remove)

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
            output = await in_thread(lambda: _output_of(spec))
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

"""Explores the specs of one object: a walk of edits in a sandbox, each compared with a fresh object of the same spec.

Each spec is made fresh in another operator process than that of the walk, and if that differs, a second time in this
one, which shows the values that differ in every object. Then one more run shows whether the other process changes the
object of the walk. The other process is replaced before each edit, and those that are left in the end try S0 again: a
small set has the same order in every second one. What an edit shows counts only if it is found again from the stored
state of S0, the first spec, with this edit alone or with a few of those before it. The cluster receives nothing but
reads.

**The time is checked before each part of an edit, not only between edits**: when it is over, no edit begins, a symptom
has one try to be found again, and what isn't complete a minute later is cut off.
"""

import asyncio
import json
import random
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from rolecall.kube.client import Client
from rolecall.kube.errors import ApiError
from rolecall.kube.metadata import uid_of
from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.watches import Watch
from rolecall.runner.proxy.ownership import Owner
from rolecall.runner.runs.variables import snake_case
from rolecall.workbench.comparison.masks import redactor
from rolecall.workbench.comparison.reports import TaskName
from rolecall.workbench.crashtest.processes import Processes, running_processes
from rolecall.workbench.explore import rules
from rolecall.workbench.explore.edits import Edit, Schema, Spec, changed_values, described, edits_of, pairs_of
from rolecall.workbench.explore.explored_object import (
    Captured,
    ExploredObject,
    SourceWithout,
    manifest_of,
    schema_of,
)
from rolecall.workbench.explore.instant_controllers import InstantControllers
from rolecall.workbench.explore.reduction import MAX_TRIES, Walk, shortest
from rolecall.workbench.explore.results import VERDICTS, Example, Exploration, Finding, Row, Verdict, write_example
from rolecall.workbench.explore.rules import Rule, Settled, Symptom
from rolecall.workbench.explore.steps import Steps
from rolecall.workbench.plan.model import PlanError, PlanRequest
from rolecall.workbench.plan.planner import Report, Targets, import_targets, project_source, targets_of
from rolecall.workbench.plan.project_source import ProjectSource
from rolecall.workbench.plan.reconciles import plan_context
from rolecall.workbench.plan.sandbox import Sandbox, running_sandbox

OnRow = Callable[[Row], None]
_LAST_PART_SECONDS: Final = 60.0
"""How long what has begun may continue after the time is over."""

_UNEDITED: Final = Row(0, "(none)", (), Verdict.SAME)


@dataclass(frozen=True, slots=True)
class ExploreRequest:
    """A request to explore one object, the one that ``plan`` names, or the only one of a watched kind in its files.

    It ends after ``minutes`` or ``edits``, 0 for no limit, or when each edit was made twice. ``only`` is the field to
    edit, ``example`` one to repeat instead, ``examples`` the directory for new ones.
    """

    plan: PlanRequest
    examples: Path
    seed: int
    minutes: float = 5.0
    edits: int = 0
    only: str = ""
    example: Example | None = None


async def explore(request: ExploreRequest, report: Report, on_row: OnRow) -> Exploration:
    """Return the findings; ``report`` is called with progress messages, ``on_row`` after each edit.

    If it is cancelled, it returns what was found before. Raises PlanError, SourceError, KubeError, ControlPlaneError.
    """
    plan = request.plan
    async with await Client.connect(plan.settings.kubeconfig) as cluster:
        targets = await targets_of(plan, cluster)
        async with (
            running_processes(
                plan.watches,
                warm=plan.settings.warm,
                seed=request.seed,
                number=request.example.process if request.example else 0,
            ) as processes,
            running_sandbox(report) as sandbox,
            opened_explorer(request, sandbox, SourceWithout(cluster), processes, targets) as explorer,
        ):
            return await explorer.explore(report, on_row)


@asynccontextmanager
async def opened_explorer(
    request: ExploreRequest, sandbox: Sandbox, source: SourceWithout, processes: Processes, targets: Targets
) -> AsyncIterator["Explorer"]:
    """Yield an explorer of the only object of the targets in a sandbox that is filled from a source.

    Raises PlanError, SourceError, KubeError.
    """
    if len(targets.single) != 1:
        raise PlanError(f"expected one object of a watched kind in the files, found {len(targets.single)}")
    [target] = targets.single
    plan = request.plan
    if not plan.follows_controllers:
        sandbox = replace(sandbox, controllers=InstantControllers(plane=sandbox.plane, client=sandbox.client))
    project = project_source(plan, sandbox, source)
    importer = sandbox.importer(project)
    async with plan_context(plan.settings, importer, processes.runner, runs_commands=plan.runs_commands) as context:
        resource = await importer.resource_of(target.watch.gvk)
        if resource is None:
            raise PlanError(f"{target.watch.gvk} isn't served by the cluster: apply its CustomResourceDefinition")
        live = await project.get(resource, target.key)
        if live is not None:
            source.owner = Owner(target.watch.gvk, target.key, uid_of(live), resource.namespaced)
        manifest = manifest_of(target.edited or live or {}, target.key)
        await import_targets(context, targets)
        empty = await sandbox.capture(importer)
        given = frozenset((GVK.of_object(each), ObjectKey.of_object(each)) for each in targets.others)
        elsewhere = replace(context, runner=processes.other)
        explored = ExploredObject(sandbox, context, elsewhere, target, resource, manifest, empty, given)
        found = Exploration(f"{target.watch.gvk.kind} {target.key}", request.seed)
        schema = await schema_of(project, target.watch.gvk)
        yield Explorer(request, project, explored, processes, schema, found, (empty, {}, {}))


@dataclass(slots=True)
class Explorer:
    """The walk of one object, and what it has found."""

    request: ExploreRequest
    source: ProjectSource
    tested: ExploredObject
    processes: Processes
    schema: Schema
    found: Exploration
    started: Captured
    """The state in which S0 has settled."""

    _start: dict[str, Any] = field(default_factory=dict)
    """S0."""

    _fresh: dict[str, list[Settled]] = field(default_factory=dict)
    _tried_in: dict[str, int] = field(default_factory=dict)
    """The number of the last other process in which each spec had runs."""

    _needs_one_run: bool = False
    """Whether the first run of a fresh object led to its end state."""

    _ignored: frozenset[str] = frozenset()
    _unstable: frozenset[str] = frozenset()
    """The places that another process has changed in the last spec."""

    _ends: float = float("inf")
    _unconfirmed: set[tuple[str, str, str]] = field(default_factory=set)
    _made: int = 0
    """How many tasks had made objects when the deletion was last tried."""

    async def explore(self, report: Report, on_row: OnRow) -> Exploration:
        """Explore until the limits are reached, or until the task is cancelled. Raises KubeError, PlanError."""
        clock, minutes, example = time.monotonic(), self.request.minutes, self.request.example
        self._ends = clock + minutes * 60 if minutes and not example else float("inf")
        limit = asyncio.timeout(self._ends - clock + _LAST_PART_SECONDS if minutes and not example else None)
        try:
            async with limit:
                report(f"Creating {self.found.title} twice")
                if await self._start_from_first_spec(on_row):
                    await (self._replay(example, report, on_row) if example else self._walk(report, on_row))
                await asyncio.sleep(0)  # raises a cancellation that came with the last row
        except TimeoutError:
            if not limit.expired():
                raise
            number = self.found.edits + 1
            self.found.notes[f"The time of --minutes was over before edit {number} was complete"] = None
            self.found.is_unfinished = True
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None:
                task.uncancel()
            self.found.was_interrupted = True
        self.found.withheld = tuple(self.tested.withheld)
        if sentence := self.source.changes.sentence("explored"):
            self.found.notes[sentence] = None
        self.found.notes |= dict.fromkeys(self.tested.context.importer.assumptions)
        self.found.seconds = time.monotonic() - clock
        return self.found

    async def _start_from_first_spec(self, on_row: OnRow) -> bool:
        """Settle the first spec; return whether it can be edited. Raises PlanError if the role fails."""
        tested = self.tested
        if self.request.example:
            tested.manifest = tested.with_spec(self.request.example.start)
        first = await tested.create(tested.manifest["spec"])
        if first.stopped_at:
            self.found.stopped_at = self._show(first.stopped_at)
            return False
        if first.failure:
            raise PlanError(f"the role of {self.found.title} fails without an edit: {self._show(first.failure)}")
        if noise := rules.noise_of(first):
            first = await self._leave_out_noise(noise, on_row)
        current = await tested.context.client.get(tested.target.watch.gvk, tested.target.key)
        self._start = dict(current.get("spec") or {})
        self.started = await tested.capture()
        once = await tested.create(self._start, max_runs=1, elsewhere=True)
        self._needs_one_run = self._is_same(once, first)
        if not self._needs_one_run:
            await tested.restore(self.started)
            await self._try_elsewhere(first, on_row)
            self._needs_one_run = self._is_same(once, first)
        elsewhere = once if self._needs_one_run else await tested.create(self._start, elsewhere=True)
        self._fresh[self._key(self._start)] = [elsewhere, first]
        self._tried_in[self._key(self._start)] = self.processes.number
        await self.tested.restore(self.started)
        if symptoms := await self._symptoms_of_deletion():
            self._report(_UNEDITED, on_row, self._findings(symptoms, deletes=True))
        return True

    async def _leave_out_noise(self, noise: Symptom, on_row: OnRow) -> Settled:
        """Report once that every run changes something, leave that out from now on, and return a fresh object."""
        tested, spec = self.tested, dict(self.tested.manifest["spec"])
        self._report(_UNEDITED, on_row, self._findings([noise]))
        tested.expects_quiet = False
        idle = await tested.create(spec)
        later = await tested.settle()
        self._ignored = frozenset(
            map(rules.noise_place_of, rules.differences(idle, idle, later, frozenset(), self._show))
        )
        return await tested.create(spec)

    async def _walk(self, report: Report, on_row: OnRow) -> None:
        """Make edit after edit, in order, and then in a random order."""
        request, dice = self.request, random.Random(self.request.seed)  # noqa: S311 - a test, no secret
        edits = await self._edits()
        if not edits:
            only = f" of {request.only}" if request.only else ""
            raise PlanError(f"{self.found.title}: there is nothing to edit{only}: its schema has no such fields")
        steps, history = Steps(self._start, edits, dice), list[Spec]()
        while not self._is_over() and not 0 < request.edits <= self.found.edits and (step := steps.next()) is not None:
            if step.resets:
                await self.tested.restore(self.started)
                history.clear()
            before, fails = steps.current, False
            spec = await self.tested.accepted(step.wanted)
            if spec is None:
                self.found.rejected += 1
            elif spec != before:
                report(f"Edit {self.found.edits + 1}: {described(before, spec)}")
                await self.processes.renew()
                history.append(spec)
                fails = await self._step(before, spec, step.edit, tuple(history), on_row)
            steps.record(step, spec, fails=fails)
        await self._try_other_processes(report, on_row)
        self.found.is_unfinished |= not self.found.edits and self._is_over()

    async def _try_other_processes(self, report: Report, on_row: OnRow) -> None:
        """Let each process that the walk has left try S0."""
        if self.processes.is_renewable and not self._is_over():
            report(f"Running the role of {self.found.title} in other processes")
        for _ in self.processes.seeds:  # more than are left, because a server that is starting isn't replaced
            if not self.processes.is_renewable or self._is_over():
                return
            await self.processes.renew()
            await self.tested.restore(self.started)
            await self._try_elsewhere(await self._fresh_of(self._start, 1), on_row)

    def _is_over(self) -> bool:
        return time.monotonic() >= self._ends

    async def _edits(self) -> list[Edit]:
        only, used = self.request.only, rules.names_in((await self._fresh_of(self._start)).end)
        edits = edits_of(self.schema, self._start, used, only)
        names = frozenset(str(each.changes[0].path[0]) for each in edits)
        return [*edits, *([] if only else pairs_of(edits, fields_of_tasks(self.tested.target.watch, names)))]

    async def _replay(self, example: Example, report: Report, on_row: OnRow) -> None:
        """Make the changes of an example."""
        specs: list[Spec] = [self._start]
        for each in example.walk:
            report(f"Edit {len(specs)}: {described(specs[-1], each)}")
            spec = await self.tested.accepted(each)
            if spec is None:
                raise PlanError(f"the API server rejects the spec of edit {len(specs)} of the example")
            specs.append(spec)
            self._made = 0 if example.deletes else self._made
            await self._step(specs[-2], spec, None, tuple(specs[1:]), on_row)

    async def _step(self, before: Spec, spec: Spec, edit: Edit | None, history: Walk, on_row: OnRow) -> bool:
        """Change the object to a spec, and report what that shows; return whether it can't have this spec."""
        values, rule = changed_values(before, spec), Rule.RETURN if edit is None else Rule.FRESH
        verdict, message, symptoms = await self._tried(spec, values, rule)
        row = Row(0, self._show(described(before, spec)), tuple(values), verdict, message)
        unstable = self._unstable
        candidates = {each.symptom.key: each for each in self._findings(symptoms, row.edit)}
        has_finalizer = bool(self.tested.target.watch.finalizer)
        is_new = len(self.tested.origins) > self._made or (has_finalizer and spec not in history[:-1])
        if verdict is Verdict.SAME and is_new:
            remaining = await self._symptoms_of_deletion()
            candidates |= {each.symptom.key: each for each in self._findings(remaining, row.edit, deletes=True)}
        confirmed = [each for each in candidates.values() if await self._is_confirmed(each, edit, history, values)]
        if any(each.symptom.rule is Rule.QUIET for each in confirmed):
            self._ignored |= unstable
        self._report(row, on_row, confirmed)
        return verdict is not Verdict.SAME

    async def _tried(self, spec: Spec, values: Mapping[str, Any], rule: Rule) -> tuple[Verdict, str, list[Symptom]]:
        """Change the object to a spec; return the verdict, a message, and what differs from a fresh object."""
        try:
            walked = await self.tested.change(spec)
            fresh = await self._fresh_of(spec, walked=walked)
        except ApiError as error:
            return Verdict.NOT_TRIED, error.message, []
        if stopped_at := walked.stopped_at or fresh.stopped_at:
            return Verdict.NOT_TRIED, self._show(stopped_at), []
        rejecting = walked if walked.is_rejected else fresh
        if rejecting.is_rejected:
            task = rejecting.failed.shown_location if rejecting.failed else "the role"
            return Verdict.REJECTED, f"by {task}; in the schema: {rules.schema_rule(values)}", []
        symptoms = await self._symptoms(walked, fresh, spec, values, rule)
        return Verdict.FAILS if walked.failure or fresh.failure else Verdict.SAME, "", symptoms

    async def _symptoms(
        self, walked: Settled, fresh: Settled, spec: Spec, values: Mapping[str, Any], rule: Rule
    ) -> list[Symptom]:
        """Return the differences between a settled object and a fresh one."""
        if failure := rules.failure_of(walked, fresh, values):
            return [replace(failure, text=self._show(failure.text))]
        noise, self._unstable = rules.noise_of(walked), frozenset()
        found = rules.differences(fresh, fresh, walked, self._ignored, self._show)
        key = self._key(spec)
        if not found and not noise and self._tried_in.get(key) == self.processes.number:
            return []
        self._tried_in[key] = self.processes.number
        unstable = await self._changes_elsewhere(walked)
        quiet = [noise] if noise else unstable
        if found:
            ignored, again = self._ignored | self._unstable, await self._fresh_of(spec, 1)
            found = rules.differences(fresh, again, walked, ignored, self._show)
        others = [each for each in found if not rules.is_kept(each)]
        self.found.kept += len(found) - len(others)
        writers = self._writers(fresh, walked)
        return [*quiet, *(rules.symptom_of(each, rule, writers, prunes=self.tested.prunes) for each in others)]

    async def _try_elsewhere(self, settled: Settled, on_row: OnRow) -> None:
        """Report what a run of another process changes of a settled object that no edit has changed."""
        if symptoms := await self._changes_elsewhere(settled):
            self._report(_UNEDITED, on_row, self._findings(symptoms))
        self._ignored |= self._unstable

    async def _changes_elsewhere(self, walked: Settled) -> list[Symptom]:
        """Return the changes that a run of another process makes to a settled object, and remember their places."""
        later = await self.tested.run_again()
        is_complete = not later.failure and not later.stopped_at
        found = rules.differences(walked, walked, later, self._ignored, self._show) if is_complete else []
        self._unstable = frozenset(map(rules.noise_place_of, found))
        return rules.unstable_of(found, self._writers(walked, later))

    def _writers(self, *settled: Settled) -> dict[tuple[str, str], TaskName]:
        """Return the tasks that wrote objects and fields, by the titles of the objects."""
        titles = {ident: obj.title for each in settled for ident, obj in each.end.items()}
        return {(titles[ident], path): task for (ident, path), task in self.tested.writers.items() if ident in titles}

    def _findings(
        self, symptoms: Iterable[Symptom], edit: str = _UNEDITED.edit, *, deletes: bool = False
    ) -> list[Finding]:
        """Return symptoms as findings without a number."""
        return [Finding(0, each, edit, deletes=deletes, process=self.processes.number) for each in symptoms]

    async def _symptoms_of_deletion(self) -> list[Symptom]:
        """Return the symptoms of a deletion of the object; afterward, the object exists again."""
        tested = self.tested
        self._made = len(tested.origins)
        async with tested.aside():
            deleted = await tested.delete()
            return rules.deletion_of(
                deleted, tested.ident, {each: tested.writers.get((each, "")) for each in tested.made}
            )

    async def _fresh_of(self, spec: Spec, number: int = 0, walked: Settled | None = None) -> Settled:
        """Return one of several fresh objects with a spec, by its number; afterward, the sandbox is as before.

        The first one has runs in another process, the others in that of the walk. One run of the first one is enough
        if it leads to the end state of ``walked``, another object with this spec.
        """
        found = self._fresh.setdefault(self._key(spec), [])
        if len(found) <= number:
            async with self.tested.aside():
                if walked is not None and self._needs_one_run and not found:
                    once = await self.tested.create(spec, max_runs=1, elsewhere=True)
                    found += [once] if self._is_same(once, walked) else []
                while len(found) <= number:
                    found.append(await self.tested.create(spec, elsewhere=not found))
            if number == 0:
                self._tried_in[self._key(spec)] = self.processes.number
        return found[number]

    def _is_same(self, once: Settled, walked: Settled) -> bool:
        """Return whether one run has led to the end state of another object, without an exception for variables."""
        is_complete = not (once.failure or once.stopped_at or walked.failure or walked.noisy)
        return is_complete and not rules.differences(once, once, walked, self._ignored, self._show)

    def _key(self, spec: Spec) -> str:
        """Return the same for equal specs, until runs write another object of the cluster."""
        of_cluster = sorted(map(str, self.tested.known.keys() - self.tested.made))
        return json.dumps([dict(spec), of_cluster], sort_keys=True)

    async def _is_confirmed(
        self, candidate: Finding, edit: Edit | None, history: Walk, values: Mapping[str, Any]
    ) -> bool:
        """Return whether a symptom is one of a finding, or is found again from S0; then keep its shortest walk."""
        key = candidate.symptom.key
        if any(each.symptom.key == key for each in self.found.findings):
            return True
        if key in self._unconfirmed:
            return False

        async def shows(walk: Walk) -> bool:
            return key in await self._keys_of(walk, values, deletes=candidate.deletes)

        async with self.tested.aside():
            candidate.walk = await shortest(
                self._start, history, edit, shows, lambda tries: tries >= MAX_TRIES or self._is_over()
            )
        if not candidate.walk and self._is_over():
            self.found.is_unfinished = True
            self.found.notes[f"Seen once before the time was over: {candidate.symptom.text}"] = None
        elif not candidate.walk:
            self._unconfirmed.add(key)
            self.found.notes[f"Seen once, and not again from the first spec: {candidate.symptom.text}"] = None
        return bool(candidate.walk)

    async def _keys_of(self, walk: Walk, values: Mapping[str, Any], *, deletes: bool) -> set[tuple[str, str, str]]:
        """Return the keys of the symptoms that the last spec of a walk from S0 shows."""
        await self.tested.restore(self.started)
        with suppress(ApiError):  # without the specs in between, the API server may reject this one
            for each in walk[:-1]:
                await self.tested.change(each)
            self._tried_in.pop(self._key(walk[-1]), None)
            _, _, symptoms = await self._tried(walk[-1], values, Rule.FRESH)
            return {each.key for each in (await self._symptoms_of_deletion() if deletes else symptoms)}
        return set()

    def _report(self, row: Row, on_row: OnRow, candidates: Iterable[Finding] = ()) -> None:
        """Add a row, and the findings that are new; count the others."""
        found = {each.symptom.key: each for each in candidates}
        known = {each.symptom.key: each for each in self.found.findings}
        new = [each for key, each in found.items() if key not in known]
        again = [known[key] for key in found if key in known]
        for each in again:
            each.count += 1
        for each in new:
            self.found.findings.append(each)
            each.number = len(self.found.findings)
            start = self._start or dict(self.tested.manifest["spec"])
            write_example(each, start, self.request.examples, self.request.seed)
        verdict = next((VERDICTS[each.symptom.rule] for each in found.values()), row.verdict)
        number = self.found.edits + bool(row.fields)
        numbers = tuple(each.number for each in again)
        row = replace(row, number=number, verdict=verdict, new=tuple(new), again=numbers)
        self.found.rows.append(row)
        on_row(row)

    def _show(self, text: str) -> str:
        """Return a text without the values of Secrets."""
        ends = (each.end for settled in self._fresh.values() for each in settled)
        return redactor({text for end in ends for obj in end.values() for text in obj.secret_texts()})(text)


def fields_of_tasks(watch: Watch, names: frozenset[str]) -> list[frozenset[str]]:
    """Return the fields that each task of a role mentions, of those with these names."""
    if not isinstance(watch.content, RoleContent):
        return []
    texts = [path.read_text(errors="replace") for path in sorted((watch.content.path / "tasks").rglob("*.y*ml"))]
    tasks = [set(re.findall(r"\w+", task)) for text in texts for task in re.split(r"(?m)^(?=- )", text)]
    return [frozenset(name for name in names if {name, snake_case(name)} & words) for words in tasks]

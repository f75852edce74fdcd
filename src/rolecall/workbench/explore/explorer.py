"""Explores the specs of one object: a walk of edits in a sandbox, each compared with a fresh object of the same spec.

The first spec, S0, is made fresh twice, which shows the values that differ in every object. About a quarter of the
edits lead back to an earlier spec. What an edit shows counts only if it is found again from the stored state of S0,
with this edit alone or with a few of those before it. The cluster receives nothing but reads.
"""

import asyncio
import json
import random
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
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
from rolecall.runner.runs.process import ProcessRunner, Runner
from rolecall.runner.runs.variables import snake_case
from rolecall.runner.warm.starter import starter_for
from rolecall.workbench.comparison.masks import redactor
from rolecall.workbench.explore import rules
from rolecall.workbench.explore.edits import Edit, Schema, Spec, changed_values, described, edits_of, pairs_of
from rolecall.workbench.explore.explored_object import Captured, ExploredObject, SourceWithout, manifest_of
from rolecall.workbench.explore.instant_controllers import InstantControllers
from rolecall.workbench.explore.reduction import Walk, shortest
from rolecall.workbench.explore.results import VERDICTS, Example, Exploration, Finding, Row, Verdict, write_example
from rolecall.workbench.explore.rules import Rule, Settled, Symptom
from rolecall.workbench.plan.model import PlanError, PlanRequest
from rolecall.workbench.plan.planner import Report, Targets, import_targets, targets_of
from rolecall.workbench.plan.reconciles import plan_context
from rolecall.workbench.plan.sandbox import Sandbox, running_sandbox

OnRow = Callable[[Row], None]
_SHARE_OF_RETURNS: Final = 0.25
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
    """Return what was found; ``report`` is called with progress messages, ``on_row`` after each edit.

    If it is cancelled, it returns what was found before. Raises PlanError, SourceError, KubeError, ControlPlaneError.
    """
    plan = request.plan
    async with await Client.connect(plan.settings.kubeconfig) as cluster:
        targets = await targets_of(plan, cluster)
        async with (
            starter_for(plan.watches, warm=plan.settings.warm) as starter,
            running_sandbox(report) as sandbox,
            opened_explorer(request, sandbox, SourceWithout(cluster), ProcessRunner(starter), targets) as explorer,
        ):
            return await explorer.explore(report, on_row)


@asynccontextmanager
async def opened_explorer(
    request: ExploreRequest, sandbox: Sandbox, source: SourceWithout, runner: Runner, targets: Targets
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
    importer = sandbox.importer(source)
    async with plan_context(plan.settings, importer, runner, runs_commands=plan.runs_commands) as context:
        resource = await importer.resource_of(target.watch.gvk)
        if resource is None:
            raise PlanError(f"{target.watch.gvk} isn't served by the cluster: apply its CustomResourceDefinition")
        live = await source.get(resource, target.key)
        if live is not None:
            source.owner = Owner(target.watch.gvk, target.key, uid_of(live), resource.namespaced)
        manifest = manifest_of(target.edited or live or {}, target.key)
        await import_targets(context, targets)
        empty = await sandbox.capture(importer)
        given = frozenset((GVK.of_object(each), ObjectKey.of_object(each)) for each in targets.others)
        explored = ExploredObject(sandbox, context, target, resource, manifest, empty, given)
        found = Exploration(f"{target.watch.gvk.kind} {target.key}", request.seed)
        yield Explorer(request, explored, await source.schema(target.watch.gvk), found, (empty, {}, {}))


@dataclass(slots=True)
class Explorer:
    """The walk of one object, and what it has found."""

    request: ExploreRequest
    tested: ExploredObject
    schema: Schema
    found: Exploration
    started: Captured
    """The state in which S0 has settled."""

    _start: dict[str, Any] = field(default_factory=dict)
    """S0."""

    _fresh: dict[str, list[Settled]] = field(default_factory=dict)
    _needs_one_run: bool = False
    """Whether the first run of a fresh object led to its end state."""

    _ignored: frozenset[str] = frozenset()
    _unconfirmed: set[tuple[str, str, str]] = field(default_factory=set)
    _made: int = 0
    """How many tasks had made objects when the deletion was last tried."""

    async def explore(self, report: Report, on_row: OnRow) -> Exploration:
        """Explore until the limits are reached, or until the task is cancelled. Raises KubeError, PlanError."""
        clock = time.monotonic()
        try:
            report(f"Creating {self.found.title} twice")
            if await self._start_from_first_spec(on_row):
                example = self.request.example
                await (self._replay(example, report, on_row) if example else self._walk(report, on_row))
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None:
                task.uncancel()
            self.found.was_interrupted = True
        self.found.withheld = tuple(self.tested.withheld)
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
        once = await tested.create(self._start, max_runs=1)
        self._needs_one_run = self._is_same(once, first)
        self._fresh[self._key(self._start)] = [first, once] if self._needs_one_run else [first]
        await self._fresh_of(self._start, 1)
        await self.tested.restore(self.started)
        if symptoms := await self._symptoms_of_deletion():
            self._report(_UNEDITED, on_row, [Finding(0, each, _UNEDITED.edit, deletes=True) for each in symptoms])
        return True

    async def _leave_out_noise(self, noise: Symptom, on_row: OnRow) -> Settled:
        """Report once that every run changes something, leave that out from now on, and return a fresh object."""
        tested, spec = self.tested, dict(self.tested.manifest["spec"])
        self._report(_UNEDITED, on_row, [Finding(0, noise, _UNEDITED.edit)])
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
        ends = time.monotonic() + request.minutes * 60 if request.minutes else float("inf")
        rest = [*edits, *dice.sample(edits, len(edits))][::-1]
        history: list[Spec] = []
        current: Spec = self._start
        edit: Edit | None = None
        has_failed = False
        while rest and time.monotonic() < ends and not 0 < request.edits <= self.found.edits:
            if has_failed and edit is None:  # even the earlier spec fails now
                await self.tested.restore(self.started)
                history, current, has_failed = [], self._start, False
            # What is switched off hides the effects of the edits that follow.
            goes_back = has_failed or (edit is not None and edit.changes[0].value is False)
            is_return = history != [] and current != self._start and (goes_back or dice.random() < _SHARE_OF_RETURNS)
            edit = None if is_return else rest.pop()
            wanted = edit.apply(current) if edit else self._earlier(history, dice, goes_back=goes_back)
            spec = await self.tested.accepted(wanted)
            if spec is None:
                self.found.rejected += 1
            elif spec != current:
                report(f"Edit {self.found.edits + 1}: {described(current, spec)}")
                history.append(spec)
                has_failed = await self._step(current, spec, edit, tuple(history), on_row)
                current = spec

    def _earlier(self, history: Sequence[Spec], dice: random.Random, *, goes_back: bool) -> Spec:
        """Return the spec before the last one if the walk goes back to it, otherwise S0 or one of the last specs."""
        if goes_back:
            return history[-2] if len(history) > 1 else self._start
        others = [each for each in history[-6:-1] if each != history[-1]]
        return dice.choice([self._start, *others])

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
        candidates = {each.key: Finding(0, each, row.edit) for each in symptoms}
        has_finalizer = bool(self.tested.target.watch.finalizer)
        is_new = len(self.tested.origins) > self._made or (has_finalizer and spec not in history[:-1])
        if verdict is Verdict.SAME and is_new:
            remaining = await self._symptoms_of_deletion()
            candidates |= {each.key: Finding(0, each, row.edit, deletes=True) for each in remaining}
        confirmed = [each for each in candidates.values() if await self._is_confirmed(each, edit, history, values)]
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
        """Return what differs between a settled object and a fresh one."""
        if failure := rules.failure_of(walked, fresh, values):
            return [replace(failure, text=self._show(failure.text))]
        noise = rules.noise_of(walked)
        found = rules.differences(fresh, fresh, walked, self._ignored, self._show)
        if found:
            found = rules.differences(fresh, await self._fresh_of(spec, 1), walked, self._ignored, self._show)
        others = [each for each in found if not rules.is_kept(each)]
        self.found.kept += len(found) - len(others)
        ends = {**fresh.end, **walked.end}
        writers = {
            (ends[ident].title, path): task for (ident, path), task in self.tested.writers.items() if ident in ends
        }
        symptoms = [rules.symptom_of(each, rule, writers, prunes=self.tested.prunes) for each in others]
        return [*([noise] if noise else []), *symptoms]

    async def _symptoms_of_deletion(self) -> list[Symptom]:
        """Return what remains if the object is deleted now; it exists afterward."""
        tested = self.tested
        self._made = len(tested.origins)
        async with tested.aside():
            deleted = await tested.delete()
            return rules.deletion_of(
                deleted, tested.ident, {each: tested.writers.get((each, "")) for each in tested.made}
            )

    async def _fresh_of(self, spec: Spec, number: int = 0, walked: Settled | None = None) -> Settled:
        """Return one of several fresh objects with a spec, by its number; afterward, the sandbox is as before.

        One run of the first one is enough if it leads to the end state of ``walked``, another object with this spec.
        """
        found = self._fresh.setdefault(self._key(spec), [])
        if len(found) <= number:
            async with self.tested.aside():
                if walked is not None and self._needs_one_run:
                    once = await self.tested.create(spec, max_runs=1)
                    found += [once] if self._is_same(once, walked) else []
                while len(found) <= number:
                    found.append(await self.tested.create(spec))
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
            candidate.walk = await shortest(self._start, history, edit, shows)
        if not candidate.walk:
            self._unconfirmed.add(key)
            self.found.notes[f"Seen once, and not again from the first spec: {candidate.symptom.text}"] = None
        return bool(candidate.walk)

    async def _keys_of(self, walk: Walk, values: Mapping[str, Any], *, deletes: bool) -> set[tuple[str, str, str]]:
        """Return the keys of the symptoms that the last spec of a walk from S0 shows."""
        await self.tested.restore(self.started)
        with suppress(ApiError):  # without the specs in between, the API server may reject this one
            for each in walk[:-1]:
                await self.tested.change(each)
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
            write_example(each, self._start or dict(self.tested.manifest["spec"]), self.request.examples)
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

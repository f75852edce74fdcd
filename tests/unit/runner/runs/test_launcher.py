import hashlib
import json
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from rolecall.kube.errors import UnreachableError
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.config.content import PlaybookContent, RoleContent
from rolecall.runner.config.settings import LogEvents, Settings
from rolecall.runner.config.watches import Finalizer, Watch
from rolecall.runner.proxy.server import Proxy
from rolecall.runner.runs.events import HIDDEN, RunEvent
from rolecall.runner.runs.launcher import Launcher, check_size, count_values, log_line
from rolecall.runner.runs.outcome import Outcome
from rolecall.runner.runs.own_writes import OwnWrites
from rolecall.runner.runs.process import ColdStarter, OnEvent, ProcessRunner, RunSpec
from tests.support.reconciler_rig import SUCCESS
from tests.support.things import THING
from tests.unit.fake_cluster import FakeCluster

PREFIX = "ansible.sdk.operatorframework.io"
PRINTED = RunEvent("runner_on_ok", task="A", stdout="ok: [localhost]")


class Recorder:
    """A runner that inspects what it receives while the run lasts."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.jobs: list[RunSpec] = []
        self.extra_vars: dict[str, Any] = {}
        self.events: tuple[RunEvent, ...] = ()
        self.during: Callable[[RunSpec], Any] = lambda _: None

    async def run(self, job: RunSpec, on_event: OnEvent) -> Outcome:
        """Record the run and replay the events."""
        self.jobs.append(job)
        self.extra_vars = json.loads((job.workspace.path / "env" / "extravars").read_text())
        if awaitable := self.during(job):
            await awaitable
        for event in self.events:
            on_event(event)
        return SUCCESS

    @property
    def job(self) -> RunSpec:
        """The last run."""
        return self.jobs[-1]

    def admits(self, job: RunSpec) -> bool:
        """Whether the proxy accepts the job's secret."""
        token = job.environment.secrets["ROLECALL_RUN_SECRET"]
        return hashlib.sha256(token.encode()).digest() in self.proxy._sessions


@pytest.fixture
def recorder(cluster: FakeCluster) -> Recorder:
    return Recorder(Proxy(cluster))


@pytest.fixture
def launcher(cluster: FakeCluster, recorder: Recorder, tmp_path: Path) -> Launcher:
    watch = Watch(THING, RoleContent(tmp_path / "roles" / "thing"))
    return Launcher(watch, Settings(), recorder, tmp_path, cluster, recorder.proxy, OwnWrites(), lambda *_: None)


def thing(**annotations: str) -> RawObject:
    """Return an object with annotations of the Go runner."""
    named = {f"{PREFIX}/{name.replace('_', '-')}": value for name, value in annotations.items()}
    metadata = {"namespace": "default", "name": "one", "uid": "u", "annotations": named}
    return {"apiVersion": THING.api_version, "kind": THING.kind, "metadata": metadata, "spec": {"podCount": "{{ 2 }}"}}


async def run(
    launcher: Launcher, obj: RawObject | None = None, *, settings: Settings | None = None, **watch: Any
) -> Outcome:
    """Run once with these settings and fields of the watch."""
    changed = replace(launcher, watch=replace(launcher.watch, **watch), settings=settings or launcher.settings)
    return await changed.run(obj or thing(), "7", finalizing=False)


async def logs_of(
    launcher: Launcher, obj: RawObject | None = None, *, settings: Settings | None = None
) -> list[dict[str, Any]]:
    with capture_logs() as logs:
        await run(launcher, obj, settings=settings)
    return [dict(line) for line in logs]


async def test_run_has_a_secret_and_a_private_kubeconfig_only_while_it_lasts(
    launcher: Launcher, recorder: Recorder
) -> None:
    seen: list[tuple[bool, int]] = []

    def inspect(job: RunSpec) -> None:
        kubeconfig = Path(job.environment.variables["KUBECONFIG"])
        seen.append((recorder.admits(job), stat.S_IMODE(kubeconfig.stat().st_mode)))

    recorder.during = inspect
    assert await run(launcher) == SUCCESS
    assert seen == [(True, 0o600)]
    assert recorder.job.ident == "7"
    assert not recorder.admits(recorder.job)
    assert not list(launcher.root.glob("kubeconfig-*"))


async def test_secret_differs_between_runs_and_is_in_no_public_variable(launcher: Launcher, recorder: Recorder) -> None:
    await run(launcher)
    await run(launcher)
    first, second = (job.environment for job in recorder.jobs)
    secret = first.secrets["ROLECALL_RUN_SECRET"]
    assert secret
    assert secret != second.secrets["ROLECALL_RUN_SECRET"]
    assert not [name for name, value in first.variables.items() if secret in value]
    assert first.variables["K8S_AUTH_KUBECONFIG"] == first.variables["KUBECONFIG"]


async def test_run_can_be_revoked_before_it_ends(launcher: Launcher, recorder: Recorder) -> None:
    admitted = []

    async def revoke(job: RunSpec) -> None:
        assert job.environment.revoke is not None
        await job.environment.revoke()
        admitted.append(recorder.admits(job))

    recorder.during = revoke
    await run(launcher)
    assert admitted == [False]


async def test_finalizer_has_its_own_variables_and_content(launcher: Launcher, recorder: Recorder) -> None:
    content = RoleContent(launcher.root / "roles" / "goodbye")
    finalizer = Finalizer("a/b", content, {"state": "absent"})
    watch = replace(launcher.watch, variables={"state": "present", "more": 1}, finalizer=finalizer)
    launcher = replace(launcher, watch=watch)
    await launcher.run(thing(), "7", finalizing=False)
    assert recorder.extra_vars["pod_count"] == {"__ansible_unsafe": "{{ 2 }}"}
    assert recorder.extra_vars["state"] == "present"
    assert recorder.job.content == watch.content
    await launcher.run(thing(), "8", finalizing=True)
    assert (recorder.extra_vars["state"], recorder.extra_vars["more"]) == ("absent", 1)
    assert recorder.job.content == content


@pytest.mark.parametrize(
    ("flag", "watch", "limit"), [(0.0, None, None), (9.0, None, 9.0), (9.0, 5.0, 5.0), (9.0, 0.0, None)]
)
async def test_flags_and_watch_set_timeout_and_tolerance(
    launcher: Launcher, recorder: Recorder, flag: float, watch: float | None, limit: float | None
) -> None:
    settings = Settings(run_timeout_seconds=flag, unreachable_ok=bool(flag))
    await run(launcher, settings=settings, timeout_seconds=watch)
    assert (recorder.job.timeout_seconds, recorder.job.unreachable_ok) == (limit, bool(flag))


@pytest.mark.parametrize(("flag", "watch", "marked"), [(True, None, True), (True, False, False), (False, True, True)])
async def test_mark_unsafe_of_the_watch_overrides_the_flag(
    launcher: Launcher, recorder: Recorder, *, flag: bool, watch: bool | None, marked: bool
) -> None:
    await run(launcher, settings=Settings(mark_unsafe=flag), mark_unsafe=watch, snake_case_parameters=False)
    assert recorder.extra_vars["podCount"] == ({"__ansible_unsafe": "{{ 2 }}"} if marked else "{{ 2 }}")


@pytest.mark.parametrize(
    ("text", "verbosity"),
    [("0", 0), ("5", 5), ("-1", -1), ("+1", 1), ("9", 7), ("100000000", 7)]
    + [(invalid, 1) for invalid in (None, "loud", "", " 1", "1_0", "1.0")],
)
async def test_annotation_overrides_the_verbosity_of_the_watch(
    launcher: Launcher, recorder: Recorder, text: str | None, verbosity: int
) -> None:
    await run(launcher, thing() if text is None else thing(verbosity=text), verbosity=1)
    assert recorder.job.verbosity == verbosity


@pytest.mark.parametrize(("text", "keep"), [(None, 3), ("1", 1), ("0", 100), ("-1", 100), ("1000", 100), ("few", 3)])
async def test_annotation_sets_the_number_of_kept_runs(
    launcher: Launcher, recorder: Recorder, text: str | None, keep: int
) -> None:
    obj = thing() if text is None else thing(max_runner_artifacts=text)
    await run(launcher, obj, max_runner_artifacts=3)
    assert recorder.job.workspace.keep_runs == keep


async def test_annotations_before_version_1_0_have_no_effect(launcher: Launcher, recorder: Recorder) -> None:
    obj = thing()
    old = "ansible.operator-sdk"
    obj["metadata"]["annotations"] = {f"{old}/verbosity": "4", f"{old}/max-runner-artifacts": "1"}
    await run(launcher, obj)
    assert (recorder.job.verbosity, recorder.job.workspace.keep_runs) == (2, 20)


async def test_failed_lookup_of_the_kind_is_a_failure(
    launcher: Launcher, recorder: Recorder, cluster: FakeCluster
) -> None:
    cluster.troubles = [("resource", UnreachableError("no response"))]
    summary = await run(launcher)
    assert (summary.status, summary.message) == ("error", "Unable to run reconciliation: no response")
    assert recorder.jobs == []


async def test_too_deeply_nested_spec_is_a_failure(launcher: Launcher) -> None:
    deep: dict[str, Any] = {}
    for _ in range(sys.getrecursionlimit()):
        deep = {"a": deep}
    summary = await run(launcher, thing() | {"spec": deep})
    assert summary.message.startswith("Unable to run reconciliation: the object is nested in more than 100 levels")


@pytest.mark.parametrize("finalizing", [False, True])
@pytest.mark.parametrize("mark_unsafe", [False, True])
async def test_key_that_ansible_acts_on_starts_no_run(
    launcher: Launcher, recorder: Recorder, *, finalizing: bool, mark_unsafe: bool
) -> None:
    watch = replace(launcher.watch, mark_unsafe=mark_unsafe, finalizer=Finalizer("a/b", None, {"state": "absent"}))
    obj = thing() | {"spec": {"labels": {"__ansible_unsafe": "x"}}}
    summary = await replace(launcher, watch=watch).run(obj, "7", finalizing=finalizing)
    assert "has the key '__ansible_unsafe', which Ansible itself acts on" in summary.message
    assert recorder.jobs == []


@pytest.mark.parametrize(
    ("annotation", "settings", "shown"),
    [
        (None, Settings(), False),
        (None, Settings(verbosity=4), False),
        (None, Settings(output_verbosity=1), True),
        ("1", Settings(), True),
        ("0", Settings(output_verbosity=1), False),
        ("loud", Settings(output_verbosity=1), True),
        ("3", Settings(log_events="nothing"), False),
    ],
)
async def test_output_of_tasks_is_logged_with_a_verbosity_of_object_or_environment(
    launcher: Launcher, recorder: Recorder, annotation: str | None, settings: Settings, *, shown: bool
) -> None:
    recorder.events = (PRINTED,)
    logs = await logs_of(launcher, thing() if annotation is None else thing(verbosity=annotation), settings=settings)
    assert any(line.get("stdout") == PRINTED.stdout for line in logs) is shown


async def test_log_lines_have_the_kind_and_the_event(launcher: Launcher, recorder: Recorder) -> None:
    recorder.events = (RunEvent("playbook_on_task_start", task="A"),)
    [line] = [line for line in await logs_of(launcher) if line["event"] == "Task started"]
    assert (line["task"], line["gvk"], line["event_type"]) == ("A", str(THING), "playbook_on_task_start")


async def test_debug_logs_include_the_whole_output_and_the_success(launcher: Launcher, recorder: Recorder) -> None:
    recorder.during = lambda job: (
        (job.workspace.artifacts(job.ident) / "stdout").write_text("\x1b[0;32mok: [localhost]\x1b[0m\r\n") and None
    )
    logs = await logs_of(launcher, settings=Settings(debug_logs=True))
    assert [(line["event"], line.get("stdout")) for line in logs] == [
        ("Output of the run", "ok: [localhost]\n"),
        ("Run succeeded", None),
    ]


NOTHING, TASKS, RESULTS, OUTPUT, EVERYTHING = LogEvents
START = "playbook_on_task_start"


def rendered(event: RunEvent, log_events: LogEvents) -> str:
    """Return the log line of an event as text, empty if there is none."""
    if not (line := log_line(event, log_events)):
        return ""
    level, message, fields = line
    return " ".join([f"{level}: {message}", *(f"{name}={value}" for name, value in fields.items())])


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (RunEvent(START, full_name="thing : A", action="k8s"), "info: Task started full_name=thing : A action=k8s"),
        (RunEvent(START, action="ansible.builtin.set_fact"), ""),
        (RunEvent("runner_on_ok", task="A", action="debug", message="hi"), "info: Task message task=A message=hi"),
        (RunEvent("runner_on_ok", action="debug"), ""),
        (RunEvent("runner_on_ok", action="k8s"), ""),
        (RunEvent("runner_item_on_ok", item="x", changed=True), "info: Item done item=x changed=True"),
        (RunEvent("runner_item_on_failed", item="x", message="no"), "error: Item failed item=x reason=no"),
        (RunEvent("runner_on_failed", message="no", task_path="p:1"), "error: Task failed reason=no path=p:1"),
        (RunEvent("runner_on_failed", message=HIDDEN, censored=True), f"error: Task failed reason={HIDDEN}"),
        (RunEvent("runner_on_failed", message="no", ignored=True), "info: Task failed (ignored) reason=no"),
        (RunEvent("runner_on_unreachable", host="h", message="no"), "error: Host unreachable host=h reason=no"),
        (RunEvent("verbose", stdout="x"), ""),
    ],
)
def test_tasks_are_logged(event: RunEvent, line: str) -> None:
    assert rendered(event, TASKS) == line


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (RunEvent(START, task="A", action="k8s"), ""),
        (
            RunEvent("runner_on_ok", task="A", action="k8s", changed=True, duration_seconds=0.095),
            "info: Task ended task=A result=changed duration=95ms",
        ),
        (RunEvent("runner_on_ok", task="A", action="k8s"), "info: Task ended task=A result=ok duration=0s"),
        (RunEvent("runner_on_skipped", task="A"), "info: Task ended task=A result=skipped duration=0s"),
        (RunEvent("runner_on_ok", task="A", action="set_fact"), ""),
        (RunEvent("runner_on_ok", task="A", action="debug", message="hi"), "info: Task message task=A message=hi"),
        (RunEvent("runner_on_failed", message="no"), "error: Task failed reason=no"),
        (RunEvent("runner_on_failed", message="no", ignored=True), "info: Task failed (ignored) reason=no"),
    ],
)
def test_results_of_tasks_are_logged(event: RunEvent, line: str) -> None:
    assert rendered(event, RESULTS) == line


@pytest.mark.parametrize("log_events", LogEvents)
def test_recap_is_always_logged(log_events: LogEvents) -> None:
    assert rendered(RunEvent("playbook_on_stats", stdout="ok=1"), log_events) == "info: Recap stdout=ok=1"


@pytest.mark.parametrize(
    ("log_events", "event", "line"),
    [
        (NOTHING, RunEvent("runner_on_failed", task="A"), ""),
        (OUTPUT, PRINTED, "info: Ansible event task=A event_type=runner_on_ok stdout=ok: [localhost]"),
        (OUTPUT, RunEvent("runner_on_start", task="A"), ""),
        (OUTPUT, RunEvent("verbose", stdout="Using ansible.cfg"), ""),
        (EVERYTHING, RunEvent("verbose", stdout="x"), "info: Ansible event event_type=verbose stdout=x"),
    ],
)
def test_events_are_logged_as_requested(log_events: LogEvents, event: RunEvent, line: str) -> None:
    assert rendered(event, log_events) == line


@pytest.mark.parametrize(
    ("value", "number"),
    [("text", 1), (None, 1), ([], 1), ({}, 1), ([1, 2], 3), ({"a": [1, {"b": 2}]}, 5)],
)
def test_values_are_counted_at_every_depth(value: Any, number: int) -> None:
    assert count_values(value) == number


def test_deeply_nested_object_can_be_counted() -> None:
    value: Any = 1
    for _ in range(50_000):
        value = [value]
    assert count_values(value) == 50_001


def test_too_large_object_is_rejected_with_advice() -> None:
    obj = {"metadata": {"name": "a"}, "spec": {"items": ["x"] * 2000}}
    with pytest.raises(ValueError, match=r"2,005 values.*at most 2,000.*--max-object-values"):
        check_size(obj, 2000)


@pytest.mark.parametrize(
    ("obj", "limit"),
    [
        ({"spec": {"items": ["x"] * 1997}}, 2000),
        ({"metadata": {"managedFields": [{}] * 3000}, "spec": {"items": ["x"] * 1990}}, 2000),
        ({"spec": {"items": ["x"] * 100_000}}, 0),
    ],
    ids=["exactly the limit", "managed fields", "no limit"],
)
def test_object_within_the_limit_is_accepted(obj: RawObject, limit: int) -> None:
    check_size(obj, limit)


class FileCalls:
    """The calls on files below a directory while it is set, by the thread that made them."""

    def __init__(self) -> None:
        self.below: Path | None = None
        self.by_thread: dict[int, list[str]] = {}

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Record a call; an audit hook."""
        paths = [str(each) for each in arguments if isinstance(each, str | os.PathLike)]
        if self.below is not None and any(path.startswith(str(self.below)) for path in paths):
            self.by_thread.setdefault(threading.get_ident(), []).append(f"{event} {' '.join(paths)}")


@pytest.fixture(scope="module")
def hook() -> FileCalls:
    calls = FileCalls()
    sys.addaudithook(calls.audit)  # permanently: there is no way to remove one
    return calls


@pytest.fixture
def file_calls(hook: FileCalls, tmp_path: Path) -> Iterator[FileCalls]:
    hook.below, hook.by_thread = tmp_path, {}
    yield hook
    hook.below = None


@pytest.fixture
def disk_launcher(launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launcher:
    """Return a launcher of a playbook with an inventory, whose runs end immediately."""
    (tmp_path / "inventory").mkdir()
    (tmp_path / "inventory" / "hosts").write_text("localhost\n")
    monkeypatch.setenv("ANSIBLE_INVENTORY", str(tmp_path / "inventory"))
    (tmp_path / "play.yml").write_text("- hosts: localhost\n")
    interpreter = tmp_path / "python"
    ending = '{"ending": {"status": "successful", "rc": 0}, "survivors": []}'
    interpreter.write_text(f"#!/bin/sh\necho '{ending}'\n")
    interpreter.chmod(0o755)
    runner = ProcessRunner(ColdStarter())
    monkeypatch.setattr(sys, "executable", os.fspath(interpreter))
    watch = Watch(THING, PlaybookContent(tmp_path / "play.yml"), max_runner_artifacts=1)
    return replace(launcher, watch=watch, runner=runner, settings=Settings(debug_logs=True))


async def test_run_does_its_disk_work_outside_the_event_loop(disk_launcher: Launcher, file_calls: FileCalls) -> None:
    for ident in ("7", "8"):
        assert (await disk_launcher.run(thing(), ident, finalizing=False)).rc == 0
    await disk_launcher.remove_workspace(ObjectKey("default", "one"))
    on_loop = file_calls.by_thread.pop(threading.get_ident(), [])
    elsewhere = {call.partition(" ")[0] for calls in file_calls.by_thread.values() for call in calls}
    assert [call for call in on_loop if not call.startswith("subprocess.Popen ")] == []
    assert {"open", "shutil.copytree", "shutil.rmtree", "os.rename", "os.symlink"} <= elsewhere
    file_calls.below = None
    assert not (disk_launcher.root / THING.group / "v1" / "Thing" / "default" / "one").exists()


async def test_missing_playbook_is_a_failure_found_outside_the_event_loop(
    disk_launcher: Launcher, file_calls: FileCalls
) -> None:
    summary = await run(disk_launcher, content=PlaybookContent(disk_launcher.root / "missing.yml"))
    assert not summary.is_successful
    assert "missing.yml" in summary.message
    assert file_calls.by_thread.pop(threading.get_ident(), []) == []
    assert file_calls.by_thread


@pytest.mark.parametrize("drops", [True, False])
async def test_undeclared_nested_fields_are_left_out_and_reported(
    launcher: Launcher, recorder: Recorder, *, drops: bool
) -> None:
    role = launcher.watch.content.path
    (role / "meta").mkdir(parents=True)
    (role / "meta" / "argument_specs.yml").write_text(
        "argument_specs: {main: {options: {quota: {type: dict, options: {max_pods: {type: int}}}}}}"
    )
    obj = {**thing(), "spec": {"quota": {"maxPods": 2, "storage": 1}, "more": {"any": 1}}}
    outcome = await run(launcher, obj, settings=Settings(drops_unknown_options=drops))
    assert recorder.extra_vars["quota"] == ({"max_pods": 2} if drops else {"max_pods": 2, "storage": 1})
    assert recorder.extra_vars["more"] == {"any": 1}
    assert recorder.extra_vars["_test_rolecall_dev_thing_spec"] == obj["spec"]
    assert outcome.left_out == (("quota.storage",) if drops else ())

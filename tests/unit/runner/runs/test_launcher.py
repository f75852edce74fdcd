import json
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from rolecall.kube.errors import UnreachableError
from rolecall.kube.references import RawObject
from rolecall.runner.config.content import PlaybookContent, RoleContent
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import Finalizer, Watch
from rolecall.runner.proxy import Proxy
from rolecall.runner.reconcile.own_writes import OwnWrites
from rolecall.runner.runs.api_access import ApiAccess
from rolecall.runner.runs.events import HIDDEN, RunEvent, RunSummary
from rolecall.runner.runs.launcher import Launcher, LogEvents, LogLine, check_size, count_values, log_line
from rolecall.runner.runs.process import OnEvent, RunSpec
from tests.integration.things import THING
from tests.unit.fake_cluster import FakeCluster
from tests.unit.runner.reconcile.rig import SUCCESS

PREFIX = "ansible.sdk.operatorframework.io"


def mode_of(file: Path) -> int:
    """Return who may do what with a file."""
    return stat.S_IMODE(file.stat().st_mode)


class Recorder:
    """A runner that looks at what it was given while the run lasts."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.jobs: list[RunSpec] = []
        self.was_let_in: list[bool] = []
        self.kubeconfigs: list[Path] = []
        self.modes: list[int] = []
        self.events: tuple[RunEvent, ...] = ()

    async def run(self, job: RunSpec, on_event: OnEvent) -> RunSummary:
        """Look."""
        self.jobs.append(job)
        self.was_let_in.append(self.is_let_in(job))
        kubeconfig = Path(job.environment["KUBECONFIG"])
        self.kubeconfigs.append(kubeconfig)
        self.modes.append(mode_of(kubeconfig))
        for event in self.events:
            on_event(event)
        return SUCCESS

    def is_let_in(self, job: RunSpec) -> bool:
        """Tell whether the proxy knows the job's secret."""
        token = job.secret_environment["K8S_AUTH_API_KEY"]
        return self.proxy._sessions.authenticate(f"Bearer {token}") is not None


@pytest.fixture
def recorder(cluster: FakeCluster) -> Recorder:
    return Recorder(Proxy(cluster))


@pytest.fixture
def launcher(cluster: FakeCluster, recorder: Recorder, tmp_path: Path) -> Launcher:
    access = ApiAccess(cluster, recorder.proxy, OwnWrites(), lambda _gvk, _ownership: None, tmp_path)
    watch = Watch(THING, RoleContent(tmp_path / "roles" / "thing"))
    return Launcher(watch, recorder, access, Settings(), tmp_path)


def thing(**annotations: str) -> RawObject:
    """Return an object with annotations of the Go runner."""
    named = {f"{PREFIX}/{name.replace('_', '-')}": value for name, value in annotations.items()}
    metadata = {"namespace": "default", "name": "one", "uid": "u", "annotations": named}
    return {"apiVersion": THING.api_version, "kind": THING.kind, "metadata": metadata, "spec": {"podCount": 2}}


def variables(root: Path) -> dict[str, Any]:
    """Return the extra vars of the last run."""
    file = root / "test.rolecall.dev" / "v1" / "Thing" / "default" / "one" / "env" / "extravars"
    found: dict[str, Any] = json.loads(file.read_text())
    return found


async def test_a_run_has_a_secret_and_a_private_kubeconfig_for_as_long_as_it_lasts(
    launcher: Launcher, recorder: Recorder
) -> None:
    assert await launcher.run(thing(), "7", finalizing=False) is SUCCESS
    [job] = recorder.jobs
    assert job.ident == "7"
    assert recorder.was_let_in == [True]
    assert recorder.modes == [0o600]
    assert not recorder.is_let_in(job)
    assert not recorder.kubeconfigs[0].exists()


async def test_a_secret_is_in_no_variable_that_is_not_secret(launcher: Launcher, recorder: Recorder) -> None:
    await launcher.run(thing(), "7", finalizing=False)
    [job] = recorder.jobs
    secret = job.secret_environment["K8S_AUTH_API_KEY"]
    assert secret
    assert not [name for name, value in job.environment.items() if secret in value]
    assert job.environment["K8S_AUTH_KUBECONFIG"] == job.environment["KUBECONFIG"]


async def test_a_run_can_be_shut_out_before_it_ends(launcher: Launcher, recorder: Recorder) -> None:
    let_in = []

    class Revoking(Recorder):
        async def run(self, job: RunSpec, on_event: OnEvent) -> RunSummary:
            assert job.revoke is not None
            await job.revoke()
            let_in.append(self.is_let_in(job))
            return await super().run(job, on_event)

    await replace(launcher, runner=Revoking(recorder.proxy)).run(thing(), "7", finalizing=False)
    assert let_in == [False]


async def test_each_run_has_another_secret(launcher: Launcher, recorder: Recorder) -> None:
    await launcher.run(thing(), "7", finalizing=False)
    await launcher.run(thing(), "8", finalizing=False)
    first, second = recorder.jobs
    assert first.secret_environment != second.secret_environment


async def test_variables_are_those_of_object_watch_and_finalizer(launcher: Launcher, tmp_path: Path) -> None:
    finalizer = Finalizer("a/b", None, {"state": "absent"})
    watch = replace(launcher.watch, variables={"state": "present", "more": 1}, finalizer=finalizer)
    launcher = replace(launcher, watch=watch)
    await launcher.run(thing(), "7", finalizing=False)
    assert (variables(tmp_path)["pod_count"], variables(tmp_path)["state"]) == (2, "present")
    await launcher.run(thing(), "8", finalizing=True)
    assert (variables(tmp_path)["state"], variables(tmp_path)["more"]) == ("absent", 1)


async def test_switches_of_the_watch_reach_the_variables(launcher: Launcher, tmp_path: Path) -> None:
    watch = replace(launcher.watch, snake_case_parameters=False, mark_unsafe=True)
    obj = thing() | {"spec": {"podCount": "{{ 1 }}"}}
    await replace(launcher, watch=watch).run(obj, "7", finalizing=False)
    assert variables(tmp_path)["podCount"] == {"__ansible_unsafe": "{{ 1 }}"}


async def test_the_finalizers_own_content_runs_when_finalizing(
    launcher: Launcher, recorder: Recorder, tmp_path: Path
) -> None:
    content = RoleContent(tmp_path / "roles" / "goodbye")
    launcher = replace(launcher, watch=replace(launcher.watch, finalizer=Finalizer("a/b", content, {})))
    await launcher.run(thing(), "7", finalizing=False)
    await launcher.run(thing(), "8", finalizing=True)
    assert [job.content for job in recorder.jobs] == [launcher.watch.content, content]


async def test_a_main_playbook_lies_in_the_project_folder(launcher: Launcher, tmp_path: Path) -> None:
    playbook = tmp_path / "play.yml"
    playbook.write_text("- hosts: localhost\n")
    watch = replace(launcher.watch, content=PlaybookContent(playbook))
    await replace(launcher, watch=watch).run(thing(), "7", finalizing=False)
    project = tmp_path / "test.rolecall.dev" / "v1" / "Thing" / "default" / "one" / "project"
    assert (project / "playbook.yaml").read_text() == playbook.read_text()


async def test_the_time_limit_of_the_watch_reaches_the_job(launcher: Launcher, recorder: Recorder) -> None:
    await replace(launcher, watch=replace(launcher.watch, timeout_seconds=5.0)).run(thing(), "7", finalizing=False)
    assert recorder.jobs[0].timeout_seconds == 5.0


@pytest.mark.parametrize(
    ("flag", "watch", "limit"), [(0.0, None, None), (9.0, None, 9.0), (9.0, 5.0, 5.0), (9.0, 0.0, None)]
)
async def test_the_time_limit_of_the_flag_is_for_watches_without_one(
    launcher: Launcher, recorder: Recorder, flag: float, watch: float | None, limit: float | None
) -> None:
    settings = replace(launcher.settings, run_timeout_seconds=flag)
    watched = replace(launcher.watch, timeout_seconds=watch)
    await replace(launcher, watch=watched, settings=settings).run(thing(), "7", finalizing=False)
    assert recorder.jobs[0].timeout_seconds == limit


@pytest.mark.parametrize(("flag", "watch", "marked"), [(True, None, True), (True, False, False), (False, True, True)])
async def test_all_kinds_are_marked_unsafe_by_the_flag_unless_their_watch_says_otherwise(
    launcher: Launcher, tmp_path: Path, *, flag: bool, watch: bool | None, marked: bool
) -> None:
    settings = replace(launcher.settings, mark_unsafe=flag)
    watched = replace(launcher.watch, mark_unsafe=watch)
    await replace(launcher, watch=watched, settings=settings).run(thing(), "7", finalizing=False)
    [variables] = tmp_path.rglob("extravars")  # noqa: ASYNC240 - a test may wait for its disk
    assert ("__ansible_unsafe" in variables.read_text()) is marked


async def test_unreachable_hosts_are_judged_as_the_flag_says(launcher: Launcher, recorder: Recorder) -> None:
    for flag in (False, True):
        settings = replace(launcher.settings, unreachable_ok=flag)
        await replace(launcher, settings=settings).run(thing(), "7", finalizing=False)
    assert [job.unreachable_ok for job in recorder.jobs] == [False, True]


@pytest.mark.parametrize(
    ("text", "verbosity"),
    [
        ("0", 0),
        ("5", 5),
        ("-1", -1),
        ("+1", 1),
        ("9", 7),
        ("100000000", 7),
        ("loud", 2),
        ("", 2),
        (" 1", 2),
        ("1_0", 2),
        ("1.0", 2),
    ],
)
async def test_an_annotation_sets_the_verbosity(
    launcher: Launcher, recorder: Recorder, text: str, verbosity: int
) -> None:
    await launcher.run(thing(verbosity=text), "7", finalizing=False)
    assert recorder.jobs[0].verbosity == verbosity


@pytest.mark.parametrize(("text", "keep"), [(None, 3), ("1", 1), ("0", 100), ("-1", 100), ("1000", 100), ("few", 3)])
async def test_an_annotation_sets_how_many_runs_are_kept(
    launcher: Launcher, recorder: Recorder, text: str | None, keep: int
) -> None:
    launcher = replace(launcher, watch=replace(launcher.watch, max_runner_artifacts=3))
    obj = thing() if text is None else thing(max_runner_artifacts=text)
    await launcher.run(obj, "7", finalizing=False)
    assert recorder.jobs[0].workspace.keep_runs == keep


async def test_a_kind_that_cannot_be_looked_up_is_a_failure(
    launcher: Launcher, recorder: Recorder, cluster: FakeCluster
) -> None:
    cluster.troubles = [("resource", UnreachableError("nobody there"))]
    summary = await launcher.run(thing(), "7", finalizing=False)
    assert (summary.status, summary.message) == ("error", "Unable to run reconciliation: nobody there")
    assert recorder.jobs == []


async def test_a_playbook_that_is_gone_is_a_failure_that_names_it(launcher: Launcher, tmp_path: Path) -> None:
    watch = replace(launcher.watch, content=PlaybookContent(tmp_path / "gone.yml"))
    summary = await replace(launcher, watch=watch).run(thing(), "7", finalizing=False)
    assert not summary.is_successful
    assert "gone.yml" in summary.message


async def test_what_an_object_left_on_disk_goes_with_it(launcher: Launcher, tmp_path: Path) -> None:
    await launcher.run(thing(), "7", finalizing=False)
    await launcher.remove_workspace(launcher._workspace(thing()).key)
    assert not (tmp_path / "test.rolecall.dev" / "v1" / "Thing" / "default" / "one").exists()


@pytest.mark.parametrize(("log_events", "logged"), [("nothing", False), ("tasks", True)])
async def test_a_runs_events_are_logged_as_the_settings_say(
    launcher: Launcher, recorder: Recorder, log_events: str, *, logged: bool
) -> None:
    recorder.events = (RunEvent("runner_on_failed", task="Boom", host="localhost", message="no more coffee"),)
    with capture_logs() as logs:
        await replace(launcher, settings=Settings(log_events=log_events)).run(thing(), "7", finalizing=False)
    assert any("Boom" in str(line) for line in logs) is logged


async def test_each_line_of_a_run_names_the_kind_in_full_and_the_event(launcher: Launcher, recorder: Recorder) -> None:
    recorder.events = (RunEvent("playbook_on_task_start", task="A"),)
    with capture_logs() as logs:
        await launcher.run(thing(), "7", finalizing=False)
    [line] = [line for line in logs if line["event"] == "Task started"]
    assert (line["task"], line["gvk"], line["event_type"]) == ("A", str(THING), "playbook_on_task_start")


async def test_the_end_of_a_play_that_succeeded_is_told(launcher: Launcher) -> None:
    with capture_logs() as logs:
        await launcher.run(thing(), "7", finalizing=False)
    assert "Play succeeded" in [line["event"] for line in logs]


@pytest.mark.parametrize(
    ("annotation", "settings", "shown"),
    [
        (None, Settings(), False),
        (None, Settings(output_verbosity=1), True),
        ("1", Settings(), True),
        ("0", Settings(output_verbosity=1), False),
        ("loud", Settings(output_verbosity=1), True),
        ("3", Settings(log_events="nothing"), False),
    ],
)
async def test_a_verbosity_that_is_asked_for_shows_what_tasks_print(
    launcher: Launcher, recorder: Recorder, annotation: str | None, settings: Settings, *, shown: bool
) -> None:
    recorder.events = (RunEvent("runner_on_ok", task="A", stdout="ok: [localhost]"),)
    with capture_logs() as logs:
        obj = thing() if annotation is None else thing(verbosity=annotation)
        await replace(launcher, settings=settings).run(obj, "7", finalizing=False)
    assert any(line.get("stdout") == "ok: [localhost]" for line in logs) is shown


async def test_the_flag_alone_does_not_show_what_tasks_print(launcher: Launcher, recorder: Recorder) -> None:
    recorder.events = (RunEvent("runner_on_ok", task="A", stdout="ok: [localhost]"),)
    with capture_logs() as logs:
        await replace(launcher, settings=Settings(verbosity=4)).run(thing(), "7", finalizing=False)
    assert [line for line in logs if "stdout" in line] == []


async def test_all_that_a_run_has_printed_is_logged_when_asked_for(launcher: Launcher, recorder: Recorder) -> None:
    class Printing(Recorder):
        async def run(self, job: RunSpec, on_event: OnEvent) -> RunSummary:
            (job.workspace.artifacts(job.ident) / "stdout").write_text("\x1b[0;32mok: [localhost]\x1b[0m\r\n")
            return await super().run(job, on_event)

    loud = replace(launcher, runner=Printing(recorder.proxy), settings=Settings(debug_logs=True))
    with capture_logs() as logs:
        await loud.run(thing(), "7", finalizing=False)
    [line] = [line for line in logs if line["event"] == "Output of the run"]
    assert line["stdout"] == "ok: [localhost]\n"


async def test_the_environment_sets_the_verbosity_of_a_kind(launcher: Launcher, recorder: Recorder) -> None:
    launcher = replace(launcher, watch=replace(launcher.watch, verbosity=0))
    await launcher.run(thing(), "7", finalizing=False)
    await launcher.run(thing(verbosity="3"), "8", finalizing=False)
    assert [job.verbosity for job in recorder.jobs] == [0, 3]


async def test_annotations_of_the_time_before_1_0_have_no_effect(launcher: Launcher, recorder: Recorder) -> None:
    obj = thing()
    obj["metadata"]["annotations"] = {
        "ansible.operator-sdk/verbosity": "4",
        "ansible.operator-sdk/max-runner-artifacts": "1",
    }
    await launcher.run(obj, "7", finalizing=False)
    [job] = recorder.jobs
    assert (job.verbosity, job.workspace.keep_runs) == (2, 20)


async def test_a_spec_that_is_nested_too_deeply_for_the_interpreter_is_a_failure(launcher: Launcher) -> None:
    deep: dict[str, Any] = {}
    for _ in range(sys.getrecursionlimit()):
        deep = {"a": deep}
    summary = await launcher.run(thing() | {"spec": deep}, "7", finalizing=False)
    assert summary.message.startswith("Unable to run reconciliation: maximum recursion depth exceeded")


TASKS = LogEvents.TASKS


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            RunEvent("playbook_on_task_start", task="A", action="k8s"),
            ("info", "Task started", {"task": "A", "action": "k8s"}),
        ),
        (
            RunEvent("playbook_on_task_start", task="A", full_name="thing : A", action="k8s"),
            ("info", "Task started", {"task": "A", "full_name": "thing : A", "action": "k8s"}),
        ),
        (
            RunEvent("runner_on_ok", task="A", action="debug", host="h", message="hi"),
            ("info", "Task said", {"task": "A", "host": "h", "said": "hi"}),
        ),
        (
            RunEvent("runner_item_on_ok", task="A", item="x", changed=True),
            ("info", "Item done", {"task": "A", "item": "x", "changed": True}),
        ),
        (
            RunEvent("runner_item_on_failed", task="A", item="x", message="no"),
            ("error", "Item failed", {"task": "A", "item": "x", "reason": "no"}),
        ),
        (
            RunEvent("runner_on_failed", task="A", message="no", task_path="p:1"),
            ("error", "Task failed", {"task": "A", "reason": "no", "path": "p:1"}),
        ),
        (
            RunEvent("runner_on_failed", task="A", message="no", ignored=True),
            ("info", "Task failed (ignored)", {"task": "A", "reason": "no"}),
        ),
        (
            RunEvent("runner_on_unreachable", task="A", host="h", message="no"),
            ("error", "Host unreachable", {"task": "A", "host": "h", "reason": "no"}),
        ),
    ],
)
def test_tasks_are_logged(event: RunEvent, line: tuple[str, str, dict[str, object]]) -> None:
    assert log_line(event, TASKS) == LogLine(*line)


@pytest.mark.parametrize(
    "event",
    [
        RunEvent("verbose", stdout="x"),
        RunEvent("runner_on_ok", task="A", action="k8s"),
        RunEvent("runner_on_ok", task="A", action="debug"),
        RunEvent("playbook_on_task_start", task="A", action="ansible.builtin.set_fact"),
    ],
)
def test_other_events_are_not_logged(event: RunEvent) -> None:
    assert log_line(event, TASKS) is None


@pytest.mark.parametrize("wanted", LogEvents)
def test_the_recap_is_always_logged(wanted: LogEvents) -> None:
    line = log_line(RunEvent("playbook_on_stats", stdout="ok=1"), wanted)
    assert line == LogLine("info", "Recap", {"stdout": "ok=1"})


def test_nothing_logs_nothing_of_tasks() -> None:
    assert log_line(RunEvent("runner_on_failed", task="A"), LogEvents.NOTHING) is None


def test_output_logs_what_tasks_print_and_nothing_else() -> None:
    event = RunEvent("runner_on_ok", task="A", stdout="ok: [localhost]", message="fine")
    fields = {"event_type": "runner_on_ok", "task": "A", "stdout": "ok: [localhost]"}
    assert log_line(event, LogEvents.OUTPUT) == LogLine("info", "Ansible event", fields)
    assert log_line(RunEvent("runner_on_start", task="A"), LogEvents.OUTPUT) is None
    assert log_line(RunEvent("verbose", stdout="Using ansible.cfg"), LogEvents.OUTPUT) is None


def test_everything_logs_each_event_with_its_output() -> None:
    line = log_line(RunEvent("verbose", stdout="config file = None"), LogEvents.EVERYTHING)
    assert line == LogLine("info", "Ansible event", {"event_type": "verbose", "stdout": "config file = None"})


def test_a_hidden_result_stays_hidden() -> None:
    line = log_line(RunEvent("runner_on_failed", task="A", message=HIDDEN, censored=True), TASKS)
    assert line is not None
    assert line.fields["reason"] == HIDDEN


@pytest.mark.parametrize(
    ("value", "number"),
    [("text", 1), (None, 1), ([], 1), ({}, 1), ([1, 2], 3), ({"a": [1, {"b": 2}]}, 5)],
)
def test_values_are_counted_at_every_depth(value: Any, number: int) -> None:
    assert count_values(value) == number


def test_a_deeply_nested_object_can_be_counted() -> None:
    value: Any = 1
    for _ in range(50_000):
        value = [value]
    assert count_values(value) == 50_001


def test_an_object_with_too_many_values_is_refused_with_what_to_do() -> None:
    obj = {"metadata": {"name": "a"}, "spec": {"items": ["x"] * 2000}}
    with pytest.raises(ValueError, match=r"2,005 values.*at most 2,000.*--max-object-values"):
        check_size(obj, 2000)


def test_an_object_of_the_largest_size_is_accepted() -> None:
    check_size({"spec": {"items": ["x"] * 1997}}, 2000)


def test_managed_fields_do_not_count() -> None:
    check_size({"metadata": {"managedFields": [{}] * 3000}, "spec": {"items": ["x"] * 1990}}, 2000)


def test_zero_means_no_limit() -> None:
    check_size({"spec": {"items": ["x"] * 100_000}}, 0)

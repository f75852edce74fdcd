import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from openshift.dynamic.exceptions import DynamicApiError, ResourceNotFoundError

from rolecall.kube.references import GVK, ObjectKey
from rolecall.workbench.project.demo_inputs import (
    Applier,
    DemoFile,
    Goal,
    OperatorProcess,
    read_demo_file,
    read_manifests,
)
from rolecall.workbench.project.demo_runs import ObjectRuns

SCRIPT = """
definitions: [deploy/crds]
samples: [deploy/samples, extra.yaml]
goals:
  - apiVersion: apps/v1
    kind: ReplicaSet
    columns: [$.spec.replicas, "$.metadata.labels['pod-count']", $.status.missing]
    until:
      - {path: "$.metadata.labels['pod-count']", equals: $.status.replicas}
      - {path: $.status.done, equals: true}
"""


def read(directory: Path, text: str = SCRIPT) -> DemoFile:
    """Read a script with this text."""
    (directory / "demo.yaml").write_text(text)
    return read_demo_file(directory / "demo.yaml")


@pytest.fixture
def goal(tmp_path: Path) -> Goal:
    """Return the goal of the script above."""
    [goal] = read(tmp_path).goals
    return goal


def replica_set(label: object, replicas: object, *, done: object = True) -> dict[str, Any]:
    """Return an object of the goal's kind."""
    return {"metadata": {"labels": {"pod-count": label}}, "status": {"replicas": replicas, "done": done}}


def test_paths_are_relative_to_the_script(tmp_path: Path) -> None:
    script = read(tmp_path)
    assert script.definitions == (tmp_path / "deploy" / "crds",)
    assert script.samples == (tmp_path / "deploy" / "samples", tmp_path / "extra.yaml")
    assert script.goals[0].gvk == GVK("apps", "v1", "ReplicaSet")


@pytest.mark.parametrize(
    ("obj", "reached"),
    [
        (replica_set("3", 3), True),
        (replica_set("3", 2), False),
        (replica_set("3", 3, done=False), False),
        (replica_set("3", 3, done="True"), True),
        ({"status": {"done": True}}, False),
        ({}, False),
    ],
    ids=["a label and a count", "another count", "one of two", "as texts", "nothing equals nothing", "empty"],
)
def test_a_goal_is_reached_when_all_of_it_holds(goal: Goal, obj: dict[str, Any], *, reached: bool) -> None:
    assert goal.is_reached(obj) is reached


def test_columns_show_the_values_of_the_object(goal: Goal) -> None:
    obj = {"spec": {"replicas": 3}, "metadata": {"labels": {"pod-count": "2"}}}
    assert goal.values(obj) == "replicas=3 pod-count=2"
    assert goal.values({}) == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "definitions: []",
        "definitions: [",
        "definitions: []\nsamples: []\ngoals: [text]",
        "definitions: []\nsamples: []\ngoals: [{apiVersion: v1, kind: Pod}]",
        "definitions: []\nsamples: []\ngoals: [{apiVersion: v1, kind: Pod, until: [{path: '$[', equals: 1}]}]",
        "definitions: []\nsamples: []\ngoals: [{apiVersion: 1, kind: Pod, until: []}]",
    ],
)
def test_a_script_of_another_form_is_an_error_that_names_the_file(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"demo.yaml: expected definitions, samples and goals"):
        read(tmp_path, text)


def test_a_script_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_demo_file(tmp_path / "demo.yaml")


def write(directory: Path, **files: str) -> Path:
    """Write files with the ending yaml into a directory and return it."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / f"{name}.yaml").write_text(text)
    return directory


def names(path: Path) -> list[str]:
    """Return the names of all objects of a path."""
    return [obj["name"] for obj in read_manifests(path)]


def test_a_file_gives_its_documents_in_order_without_empty_ones(tmp_path: Path) -> None:
    write(tmp_path, objects="---\nname: b\n---\n# nothing\n---\nname: a\n")
    assert names(tmp_path / "objects.yaml") == ["b", "a"]


def test_a_directory_goes_by_its_kustomization(tmp_path: Path) -> None:
    write(tmp_path, z="name: z", a="name: a", left="name: left", kustomization="resources: [z.yaml, nested, a.yaml]")
    write(tmp_path / "nested", inner="name: inner")
    assert names(tmp_path) == ["z", "inner", "a"]


def test_a_directory_without_one_goes_by_name(tmp_path: Path) -> None:
    write(tmp_path, z="name: z", a="name: a")
    (tmp_path / "README.md").write_text("no manifest")
    assert names(tmp_path) == ["a", "z"]


def test_a_kustomization_without_resources_gives_nothing(tmp_path: Path) -> None:
    assert names(write(tmp_path, kustomization="resources:", a="name: a")) == []


def test_a_path_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        names(tmp_path / "nowhere")


@pytest.fixture
def operator(tmp_path: Path) -> OperatorProcess:
    """Return an operator that was not started, with an empty log."""
    (tmp_path / "operator.log").touch()
    return OperatorProcess(tmp_path, tmp_path / "kubeconfig", tmp_path / "operator.log")


def line(**fields: str) -> str:
    """Return one line of a log."""
    return json.dumps(fields) + "\n"


def test_each_run_that_ended_is_noted_once_its_line_is_whole(operator: OperatorProcess) -> None:
    first = line(kind="Foo", namespace="default", name="one", duration="350ms")
    operator.log.write_text(first[:20])
    operator.read_log()
    assert operator.runs.objects == {}
    operator.log.write_text(first + "Traceback\n[1]\n\n" + line(msg="Watching", kind="Foo", name="one"))
    operator.read_log()
    assert operator.runs.objects == {("Foo", "default/one"): ObjectRuns("350ms", 1)}


def test_the_last_run_of_an_object_counts(operator: OperatorProcess) -> None:
    for duration in ("1s", "2s"):
        with operator.log.open("a") as log:
            log.write(line(kind="Node", name="one", duration=duration))
        operator.read_log()
    assert operator.runs.objects == {("Node", "one"): ObjectRuns("2s", 2)}


def test_last_warnings_of_the_log_are_readable(operator: OperatorProcess) -> None:
    status = json.dumps(
        {"kind": "Status", "status": "Failure", "message": "no quota", "code": 403}, separators=(",", ":")
    )
    lines = [
        line(level="info", msg="Watching"),
        line(level="warning", msg="Old"),
        line(level="error", msg="Reconcile failed", error=f"Failed: b'{status}'", kind="Foo", name="one"),
        "rolecall run: no such file\n",
    ]
    operator.log.write_text("".join(lines))
    assert operator.warnings(2).splitlines() == [
        "error: Reconcile failed (error: Failed: no quota (403), kind: Foo, name: one)",
        "rolecall run: no such file",
    ]


def test_an_operator_that_was_not_started_has_no_process(operator: OperatorProcess) -> None:
    with pytest.raises(RuntimeError, match="has not been started"):
        _ = operator.pid
    assert not operator.has_ended
    operator.stop()


def pretend(operator: OperatorProcess, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start a Python program instead of the operator; it gets the operator's arguments."""
    script = operator.project / "python"
    script.write_text(f"#!{sys.executable}\nimport os, signal, sys\n{program}\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    operator.start()


def wait_for(operator: OperatorProcess, text: str) -> None:
    """Wait until a text is in the log."""
    assert operator._process is not None
    while text not in operator.log.read_text():
        assert operator._process.poll() is None, operator.log.read_text()


def test_the_operator_runs_in_its_project_with_its_kubeconfig_and_is_asked_to_end(
    operator: OperatorProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "print(os.getcwd(), os.environ['KUBECONFIG'], *sys.argv[1:], flush=True)\nsignal.pause()"
    pretend(operator, program, monkeypatch)
    wait_for(operator, "json")
    where, kubeconfig, *arguments = operator.log.read_text().split()
    assert (where, kubeconfig) == (str(operator.project), str(operator.kubeconfig))
    assert arguments == ["-m", "rolecall", "run", "--zap-encoder", "json"]
    assert operator.pid > 0
    assert not operator.has_ended
    operator.stop()
    assert operator.has_ended
    operator.stop()


def test_an_operator_that_does_not_listen_is_killed(operator: OperatorProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rolecall.workbench.project.demo_inputs.STOP_SECONDS", 0.1)
    program = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('deaf', flush=True)\nwhile True: signal.pause()"
    pretend(operator, program, monkeypatch)
    wait_for(operator, "deaf")
    operator.stop()
    assert operator.has_ended


def test_an_operator_that_ended_by_itself_is_seen(operator: OperatorProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(operator, "print('bye', flush=True)", monkeypatch)
    assert operator._process is not None
    operator._process.wait(60)
    assert operator.has_ended


def test_the_address_of_the_dashboard_is_read_from_the_log(operator: OperatorProcess) -> None:
    operator.log.write_text('{"msg":"Serving the dashboard","url":"http://127.0.0.1:7/"}\n{"msg":"other","url":"no"}\n')
    operator.read_log()
    assert operator.runs.page == "http://127.0.0.1:7/"


class _FakeCluster:
    """A cluster that serves one kind, and rejects objects without a spec."""

    def __init__(self, *, namespaced: bool) -> None:
        self.namespaced, self.applied, self.resources = namespaced, list[tuple[str, str | None]](), self

    def get(self, kind: str, **_: str) -> "_FakeCluster":
        if kind != "Site":
            raise ResourceNotFoundError(kind)
        return self

    def invalidate_cache(self) -> None:
        pass

    def apply(self, body: dict[str, Any], namespace: str | None) -> None:
        if "spec" not in body:
            status = {
                "kind": "Status",
                "status": "Failure",
                "message": "Site is invalid: spec: Required value",
                "code": 422,
            }
            content = json.dumps(status, separators=(",", ":")).encode()
            raise DynamicApiError(SimpleNamespace(status=422, reason="", body=content, headers={}))
        self.applied.append((body["metadata"]["name"], namespace))


def applier(cluster: _FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Applier:
    """Return an applier for a cluster."""
    module = "rolecall.workbench.project.demo_inputs"
    monkeypatch.setattr(f"{module}.new_client_from_config", lambda _: None)
    monkeypatch.setattr(f"{module}.DynamicClient", lambda _: cluster)
    monkeypatch.setattr(f"{module}.ESTABLISHED_SECONDS", -1)
    return Applier(Path("kubeconfig"))


def site(name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Site", "metadata": {"name": name}, "spec": {}, **more}


@pytest.mark.parametrize(("namespaced", "expected"), [(True, "default"), (False, None)])
def test_object_without_a_namespace_is_applied_like_kubectl(
    monkeypatch: pytest.MonkeyPatch, *, namespaced: bool, expected: str | None
) -> None:
    cluster = _FakeCluster(namespaced=namespaced)
    assert applier(cluster, monkeypatch).apply([site("one")]) == [ObjectKey(expected or "", "one")]
    assert cluster.applied == [("one", expected)]


def test_rejected_object_is_one_readable_line(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = _FakeCluster(namespaced=True)
    invalid = site("two")
    del invalid["spec"]
    message = r"^Site default/two can't be applied: Site is invalid: spec: Required value \(422\)$"
    with pytest.raises(ValueError, match=message):
        applier(cluster, monkeypatch).apply([site("one"), invalid])
    with pytest.raises(
        ValueError, match=r"^Page one can't be applied: the API server serves no Page of example\.com/v1: "
    ):
        applier(cluster, monkeypatch).apply([site("one", kind="Page")])

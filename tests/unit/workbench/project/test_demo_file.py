from pathlib import Path
from typing import Any

import pytest

from rolecall.kube.references import GVK
from rolecall.workbench.project.demo_inputs import DemoFile, Goal, read_demo_file

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


def read(folder: Path, text: str = SCRIPT) -> DemoFile:
    """Read a script with this text."""
    (folder / "demo.yaml").write_text(text)
    return read_demo_file(folder / "demo.yaml")


@pytest.fixture
def goal(tmp_path: Path) -> Goal:
    """Give the goal of the script above."""
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

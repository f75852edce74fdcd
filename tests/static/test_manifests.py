import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from rolecall.kube.jsonpath import parse_path, values_at
from tests.static.repository import BUILT_IN, ROOT, crds, documents, schema, watches

SAMPLES = documents("deploy/samples/*.yaml")
GOALS: list[dict[str, Any]] = yaml.safe_load((ROOT / "demo.yaml").read_text())["goals"]


def sample(kind: str) -> dict[str, Any]:
    (found,) = [each for each in SAMPLES if each["kind"] == kind and each["apiVersion"] != "v1"][:1]
    return deepcopy(found)


def is_valid(obj: dict[str, Any]) -> bool:
    return bool(jsonschema.Draft202012Validator(schema(obj["kind"])).is_valid(obj))


@pytest.mark.parametrize("obj", [pytest.param(each, id=each["kind"]) for each in SAMPLES if each["kind"] in crds()])
def test_every_sample_is_valid(obj: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(schema(obj["kind"])).validate(obj)


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("PodScaler", "count", -1),
        ("PodScaler", "count", "4"),
        ("PodScaler", "count", None),
        ("PodScaler", "selector", {}),
        ("PodScaler", "selector", {"app": "{{ lookup('env', 'HOME') }}"}),
        ("PodScaler", "selector", {"app": "x" * 64}),
        ("Hikawa", "intervalMillis", -1),
        ("Hikawa", "intervalMillis", 0.5),
        ("Hikawa", "numZundokos", -1),
        ("Hikawa", "sayKiyoshi", "yes"),
        ("Foo", "deploymentName", ""),
        ("Foo", "deploymentName", "Upper"),
        ("Foo", "deploymentName", "x" * 64),
        ("Foo", "replicas", -1),
    ],
)
def test_invalid_value_is_rejected(kind: str, field: str, value: object) -> None:
    obj = sample(kind)
    obj["spec"][field] = value
    assert not is_valid(obj)


@pytest.mark.parametrize(
    ("kind", "field"), [("PodScaler", "count"), ("PodScaler", "selector"), ("Hikawa", "intervalMillis")]
)
def test_missing_value_is_rejected(kind: str, field: str) -> None:
    obj = sample(kind)
    del obj["spec"][field]
    assert not is_valid(obj)


@pytest.mark.parametrize("selector", [{"tierName": "Web"}, {"app.kubernetes.io/name": "x"}, {"empty": ""}])
def test_every_label_is_a_valid_selector(selector: dict[str, str]) -> None:
    obj = sample("PodScaler")
    obj["spec"]["selector"] = selector
    assert is_valid(obj)


@pytest.mark.parametrize("kind", crds())
def test_every_crd_describes_its_fields(kind: str) -> None:
    fields = schema(kind)["properties"]["spec"]["properties"]
    assert all(field["description"] for field in fields.values())


@pytest.mark.parametrize(
    "path", [each.parent for each in ROOT.glob("deploy/**/kustomization.yaml")], ids=lambda path: path.name
)
def test_kustomization_lists_the_files_of_its_directory(path: Path) -> None:
    listed = yaml.safe_load((path / "kustomization.yaml").read_text()).get("resources", [])
    files = {each.name for each in path.glob("*.yaml")} - {"kustomization.yaml"}
    assert {each for each in listed if not (path / each).is_dir()} == files


@pytest.mark.parametrize("pattern", ["demo.yaml", "Makefile", "bench/*.py", "molecule/*/*.yml", "tests/*/*.py"])
def test_every_referenced_manifest_exists(pattern: str) -> None:
    named = {
        (path.name, word)
        for path in ROOT.glob(pattern)
        for word in re.findall(r"\bdeploy/[a-z/-]+/[a-z_-]+\.yaml", path.read_text())
    }
    assert {each for each in named if not (ROOT / each[1]).exists()} == set()


def test_the_demo_knows_the_end_of_every_watched_kind() -> None:
    kinds = {(f"{entry['group']}/{entry['version']}", entry["kind"]) for entry in watches()}
    assert {(goal["apiVersion"], goal["kind"]) for goal in GOALS} == kinds


@pytest.mark.parametrize("goal", [pytest.param(each, id=each["kind"]) for each in GOALS])
def test_the_paths_of_the_demo_lead_to_fields(goal: dict[str, Any]) -> None:
    paths = goal["columns"] + [text for each in goal["until"] for text in each.values() if str(text).startswith("$")]
    for text in paths:
        found = values_at(parse_path(text), full(goal["kind"]))
        assert len(found) == 1, text


def full(kind: str) -> dict[str, Any]:
    """Return an object of the kind with every field of its schema."""
    if kind in BUILT_IN:
        labels = {"labels": {"pod-count": "1"}}
        return {"metadata": labels, "spec": {"replicas": 1}, "status": {"replicas": 1}}
    properties = schema(kind)["properties"]
    return {part: dict.fromkeys(properties[part]["properties"], 1) for part in ("spec", "status")}

"""A new kind has a recorded run of its sample, which is a whole record with the names of the kind."""

from pathlib import Path

import pytest
import yaml

from rolecall.runner.record.reader import read_record
from rolecall.workbench.project.scaffold import NewKind, create_api, init_project


@pytest.mark.parametrize("content", ["role", "playbook", "both"])
def test_the_recorded_run_is_that_of_the_sample(content: str, tmp_path: Path) -> None:
    init_project(tmp_path, "web", "example.com").write()
    with_role, with_playbook = content in ("role", "both"), content in ("playbook", "both")
    kind = NewKind("shop", "v1alpha1", "Policy", with_role=with_role, with_playbook=with_playbook)
    create_api(tmp_path, kind).write()
    record = read_record(tmp_path / "tests/records/policy.jsonl")
    _, sample = yaml.safe_load_all((tmp_path / "deploy/samples/policy.yaml").read_text())
    found = record.head["object"]
    assert (found["apiVersion"], found["kind"], found["spec"]) == (sample["apiVersion"], "Policy", sample["spec"])
    assert record.name == "policy-sample/policy-sample"
    assert record.end["outcome"] == "succeeded"
    (write,) = [each for each in record.exchanges if each["verb"] == "create"]
    assert write["request"]["json"]["metadata"]["name"] == "policy-sample-policy"


def test_the_recorded_run_of_a_cluster_scoped_kind_creates_its_namespace_first(tmp_path: Path) -> None:
    init_project(tmp_path, "web", "example.com").write()
    create_api(tmp_path, NewKind("shop", "v1", "Team", is_namespaced=False)).write()
    record = read_record(tmp_path / "tests/records/team.jsonl")
    assert record.name == "sample"
    writes = [each["request"]["json"] for each in record.exchanges if each["verb"] == "create"]
    assert [each["kind"] for each in writes] == ["Namespace", "ConfigMap"]
    assert writes[0]["metadata"]["name"] == writes[1]["metadata"]["namespace"] == "team-sample"

import json
import os
import subprocess
import sys
from pathlib import Path

from ansible_collections.rolecall.util.plugins.filter.watch import FilterModule, mapped_status, role_variables

from rolecall.runner.runs.runner_process import COLLECTIONS

FOO = {
    "apiVersion": "e.com/v1",
    "kind": "Foo",
    "metadata": {"name": "f", "namespace": "ns", "generation": 3},
    "spec": {"deploymentName": "d", "labels": {"tierName": "Web"}},
}


def test_role_variables_are_those_of_the_operator() -> None:
    assert role_variables(FOO, {"vars": {"extra": 1}}) == {
        "deployment_name": "d",
        "labels": {"tier_name": "Web"},
        "ansible_operator_meta": {"name": "f", "namespace": "ns"},
        "_e_com_foo": FOO,
        "_e_com_foo_spec": FOO["spec"],
        "extra": 1,
    }


def test_filters_take_the_containers_of_ansible(tmp_path: Path) -> None:
    # Since ansible-core 2.19, a template passes dictionaries and lists that are filled while they are read.
    watch = {"vars": {"extra": [{"a": 1}]}, "status": {"name": "$.resource.metadata.name"}}
    results = {
        "variables": "{{ foo | rolecall.util.role_variables(watch) }}",
        "status": "{{ foo | rolecall.util.mapped_status(watch, {}) }}",
    }
    task = {"ansible.builtin.copy": {"content": "{{ results | to_json }}", "dest": f"{tmp_path}/results"}}
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars": {"foo": FOO, "watch": watch, "results": results},
        "tasks": [task],
    }
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS), "ANSIBLE_LOCALHOST_WARNING": "false"}
    command = [sys.executable, "-m", "ansible", "playbook", str(tmp_path / "play.yml")]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert json.loads((tmp_path / "results").read_text()) == {
        "variables": role_variables(FOO, watch),
        "status": {"name": "f", "observedGeneration": 3},
    }


def test_names_are_unchanged_without_snake_case() -> None:
    assert role_variables(FOO, {"snakeCaseParameters": False})["deploymentName"] == "d"


def test_status_is_mapped_from_stats_and_object() -> None:
    watch = {"status": {"ready": "$.stats.ready_pods", "name": "$.resource.metadata.name", "other": "$.stats.other"}}
    assert mapped_status(FOO, watch, {"ready_pods": 2}) == {"ready": 2, "name": "f", "observedGeneration": 3}


def test_object_without_generation_has_no_observed_generation() -> None:
    assert mapped_status({"metadata": {}}, {}, {}) == {}


def test_ansible_finds_the_filters() -> None:
    assert set(FilterModule().filters()) == {"role_variables", "mapped_status"}

"""What is written, read as those read it for whom it is written: the operator, the demo, kustomize, Ansible."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator  # type: ignore[import-untyped]

from rolecall.runner.config.watches import load_watches
from rolecall.workbench.project.demo_inputs import read_demo_file, read_manifests
from rolecall.workbench.project.scaffold import NewKind, ScaffoldError, create_api, init_project

WEBSITE = NewKind("shop", "v1", "Website", with_role=True)
POLICY = NewKind("shop", "v1alpha1", "Policy", with_playbook=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    init_project(tmp_path / "web", "web", "example.com").write()
    return tmp_path / "web"


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def texts(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_the_operator_reads_an_empty_project(project: Path) -> None:
    assert load_watches(project / "watches.yaml", {}, project) == ()
    assert read_demo_file(project / "demo.yaml").goals == ()


def test_an_editor_finds_the_schema_that_watches_yaml_names(project: Path) -> None:
    create_api(project, WEBSITE).write()
    text = (project / "watches.yaml").read_text()
    [named] = re.findall(r"^# yaml-language-server: \$schema=(\S+)$", text, re.MULTILINE)
    schema = json.loads((project / named).read_text())
    Draft7Validator(schema).validate(yaml.safe_load(text))


def test_two_kinds_are_watched_one_by_a_role_and_one_by_a_playbook(project: Path) -> None:
    create_api(project, WEBSITE).write()
    create_api(project, POLICY).write()
    found = load_watches(project / "watches.yaml", {}, project)
    assert [str(watch.gvk) for watch in found] == [
        "shop.example.com/v1, Kind=Website",
        "shop.example.com/v1alpha1, Kind=Policy",
    ]
    assert read(project / "watches.yaml")[0]["role"] == "website"
    assert read(project / "watches.yaml")[1]["playbook"] == "playbooks/policy.yml"


def test_the_demo_applies_the_kinds_and_waits_for_each(project: Path) -> None:
    create_api(project, WEBSITE).write()
    create_api(project, POLICY).write()
    script = read_demo_file(project / "demo.yaml")
    assert [goal.gvk.kind for goal in script.goals] == ["Website", "Policy"]
    definitions = [obj for path in script.definitions for obj in read_manifests(path)]
    named = {obj["metadata"]["name"] for obj in definitions if obj["kind"] == "CustomResourceDefinition"}
    assert named == {"websites.shop.example.com", "policies.shop.example.com"}
    samples = [obj for path in script.samples for obj in read_manifests(path)]
    assert [obj["kind"] for obj in samples] == ["Namespace", "Website", "Namespace", "Policy"]


def test_permissions_are_given_to_the_account_of_the_deployment(project: Path) -> None:
    create_api(project, WEBSITE).write()
    objects = list(read_manifests(project / "deploy/operator"))
    [account] = [obj["metadata"] for obj in objects if obj["kind"] == "ServiceAccount"]
    [deployment] = [obj for obj in objects if obj["kind"] == "Deployment"]
    subjects = [subject for obj in objects for subject in obj.get("subjects", ())]
    assert len(subjects) == 3
    assert all(
        (subject["name"], subject["namespace"]) == (account["name"], account["namespace"]) for subject in subjects
    )
    assert deployment["spec"]["template"]["spec"]["serviceAccountName"] == account["name"]
    assert "rolecall" not in (project / "deploy/operator/deployment.yaml").read_text()


def test_the_role_has_the_options_and_defaults_of_the_schema(project: Path) -> None:
    create_api(project, WEBSITE).write()
    [version] = read(project / "deploy/crds/websites.yaml")["spec"]["versions"]
    field = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["message"]
    option = read(project / "roles/website/meta/argument_specs.yml")["argument_specs"]["main"]["options"]["message"]
    assert option["default"] == field["default"] == read(project / "roles/website/defaults/main.yml")["message"]
    assert option["description"] == field["description"]
    assert version["subresources"] == {"status": {}}


def test_with_both_the_playbook_runs_the_role(project: Path) -> None:
    create_api(project, NewKind("shop", "v1", "Website", with_role=True, with_playbook=True)).write()
    [watch] = read(project / "watches.yaml")
    tasks = read(project / "playbooks/website.yml")[0]["tasks"]
    assert watch["playbook"] == "playbooks/website.yml"
    assert {"name": "{{ playbook_dir }}/../roles/website"} in [
        task.get("ansible.builtin.include_role") for task in tasks
    ]
    assert (project / "roles/website/tasks/main.yml").is_file()


@pytest.mark.parametrize(("with_role", "with_playbook"), [(True, False), (False, True), (True, True)])
def test_every_kind_has_a_playbook_for_use_without_an_operator(
    project: Path,
    with_role: bool,  # noqa: FBT001
    with_playbook: bool,  # noqa: FBT001
) -> None:
    create_api(project, NewKind("shop", "v1", "Website", with_role=with_role, with_playbook=with_playbook)).write()
    assert "-e cr_name=NAME -e cr_namespace=NAMESPACE" in (project / "playbooks/website.yml").read_text()


@pytest.mark.parametrize("kind", ["Operator", "Kinds", "Tasks", "Conftest", "Read", "Main"])
def test_kinds_named_like_a_part_of_a_project_find_their_place(project: Path, kind: str) -> None:
    create_api(project, NewKind("shop", "v1", kind, with_role=True)).write()
    assert read(project / "watches.yaml")[0]["kind"] == kind


def test_no_kind_gets_the_name_of_a_permission_of_the_operator(project: Path) -> None:
    names = [obj["metadata"]["name"] for obj in read_manifests(project / "deploy/rbac") if obj["kind"] == "ClusterRole"]
    assert all("-" in name.removeprefix("web-") for name in names)


def test_a_plural_of_ones_own_names_the_definition(project: Path) -> None:
    create_api(project, NewKind("shop", "v1", "Website", "sites", with_role=True)).write()
    assert read(project / "deploy/crds/sites.yaml")["metadata"]["name"] == "sites.shop.example.com"
    assert read(project / "deploy/crds/kustomization.yaml")["resources"] == ["sites.yaml"]


def test_a_new_kind_is_reconciled_when_what_its_role_has_read_changes(project: Path) -> None:
    create_api(project, WEBSITE).write()
    assert read(project / "watches.yaml")[0]["watchReads"] is True


def test_comments_of_the_user_stay(project: Path) -> None:
    create_api(project, WEBSITE).write()
    watches = project / "watches.yaml"
    mine = watches.read_text().replace("  timeout: 5m\n", "  timeout: 5m # mine\n") + "# the end\n"
    watches.write_text(mine)
    create_api(project, POLICY).write()
    kept = iter(watches.read_text().splitlines())
    assert all(line in kept for line in mine.splitlines())


def test_the_same_kind_again_is_refused_and_changes_nothing(project: Path) -> None:
    create_api(project, WEBSITE).write()
    before = texts(project)
    with pytest.raises(ScaffoldError, match=r"already has an entry for shop\.example\.com/v1, kind 'Website'"):
        create_api(project, WEBSITE)
    with pytest.raises(ScaffoldError, match=r"(?s)never overwritten:.*roles/website/tasks/main\.yml"):
        create_api(project, NewKind("other", "v1", "Website", with_role=True)).write()
    assert texts(project) == before


def test_a_project_is_never_written_over_another(project: Path) -> None:
    (project / "README.md").write_text("mine")
    before = texts(project)
    with pytest.raises(ScaffoldError, match=r"(?s)never overwritten:.*README\.md"):
        init_project(project, "web", "example.com").write()
    assert texts(project) == before


def test_a_folder_that_is_no_project_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ScaffoldError, match=r"PROJECT: file not found.*rolecall init.*--project DIR"):
        create_api(tmp_path, WEBSITE)


@pytest.mark.parametrize("text", ["", "[]", "domain: example.com", "{"])
def test_a_project_file_without_its_keys_is_refused(project: Path, text: str) -> None:
    (project / "PROJECT").write_text(text)
    with pytest.raises(ScaffoldError, match="expected the keys projectName and domain"):
        create_api(project, WEBSITE)


def test_a_kind_with_neither_role_nor_playbook_requested_has_a_role(project: Path) -> None:
    new_kind = NewKind("shop", "v1", "Website")
    assert create_api(project, new_kind) == create_api(project, replace(new_kind, with_role=True))

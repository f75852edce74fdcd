"""Generated files, parsed by their users: the operator, the demo, kustomize, and Ansible."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator  # type: ignore[import-untyped]

from rolecall.kube.references import plural_of
from rolecall.runner.config.watches import load_watches
from rolecall.workbench.project.demo_inputs import read_demo_file, read_manifests
from rolecall.workbench.project.scaffold import (
    FOLDER,
    KindNames,
    NewKind,
    ProjectFiles,
    ScaffoldError,
    append_item,
    checked,
    checked_group,
    create_api,
    init_project,
    list_items,
    read_originals,
    render_snippet,
    render_tree,
    scaffold_files,
)

WEBSITE = NewKind("shop", "v1", "Website", with_role=True)
POLICY = NewKind("shop", "v1alpha1", "Policy", with_playbook=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    init_project(tmp_path / "web", "web", "example.com").write()
    return tmp_path / "web"


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def texts(directory: Path) -> dict[str, str]:
    return {str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*") if path.is_file()}


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
    text = (project / "deploy/operator/deployment.yaml").read_text()
    assert re.findall(".*rolecall.*", text) == ["          command: [/tini, --, rolecall, run]"]


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


def test_users_of_a_kind_are_viewers_or_editors_and_the_operator_is_neither(project: Path) -> None:
    create_api(project, WEBSITE).write()
    assert read(project / "deploy/users/kustomization.yaml")["resources"] == ["website.yaml"]
    roles = list(read_manifests(project / "deploy/users"))
    assert [role["metadata"]["name"] for role in roles] == ["web-website-viewer", "web-website-editor"]
    assert {resource for role in roles for rule in role["rules"] for resource in rule["resources"]} == {"websites"}
    names = {role["metadata"]["name"] for role in read_manifests(project / "deploy/rbac")}
    assert names.isdisjoint(role["metadata"]["name"] for role in roles)


def test_a_plural_of_ones_own_names_the_definition(project: Path) -> None:
    create_api(project, NewKind("shop", "v1", "Website", "sites", with_role=True)).write()
    assert read(project / "deploy/crds/sites.yaml")["metadata"]["name"] == "sites.shop.example.com"
    assert read(project / "deploy/crds/kustomization.yaml")["resources"] == ["sites.yaml"]


def test_a_new_kind_is_reconciled_when_what_its_role_has_read_changes(project: Path) -> None:
    create_api(project, WEBSITE).write()
    assert read(project / "watches.yaml")[0]["watchReads"] is True


TEAM = NewKind("shop", "v1", "Team", is_namespaced=False)


def test_cluster_scoped_kind_is_defined_for_the_cluster_and_its_sample_has_no_namespace(project: Path) -> None:
    create_api(project, TEAM).write()
    assert read(project / "deploy/crds/teams.yaml")["spec"]["scope"] == "Cluster"
    [sample] = read_manifests(project / "deploy/samples")
    assert (sample["kind"], sample["metadata"]) == ("Team", {"name": "sample"})
    script = read_demo_file(project / "demo.yaml")
    assert [obj for path in script.samples for obj in read_manifests(path)] == [sample]
    assert [goal.gvk.kind for goal in script.goals] == ["Team"]


def test_role_of_a_cluster_scoped_kind_creates_the_namespace_of_its_config_map(project: Path) -> None:
    create_api(project, TEAM).write()
    namespace, config_map = [
        task["kubernetes.core.k8s"]["definition"]
        for task in read(project / "roles/team/tasks/main.yml")
        if "kubernetes.core.k8s" in task
    ]
    assert (namespace["kind"], config_map["kind"]) == ("Namespace", "ConfigMap")
    assert (
        config_map["metadata"]["namespace"] == namespace["metadata"]["name"] == "team-{{ ansible_operator_meta.name }}"
    )


def test_permissions_of_a_cluster_scoped_kind_include_namespaces(project: Path) -> None:
    create_api(project, TEAM).write()
    create_api(project, WEBSITE).write()
    objects = read_manifests(project / "deploy/rbac")
    roles = {obj["metadata"]["name"]: obj for obj in objects if obj["kind"] == "ClusterRole"}
    granted = {
        name: {resource: rule["verbs"] for rule in roles[name]["rules"] for resource in rule["resources"]}
        for name in ("web-team", "web-website")
    }
    assert {*granted["web-team"]["configmaps"]} - {*granted["web-team"]["namespaces"]} == {"delete"}
    assert "namespaces" not in granted["web-website"]


def test_scenario_and_tests_of_a_cluster_scoped_kind_find_it_without_a_namespace(project: Path) -> None:
    create_api(project, TEAM).write()
    found = {
        (arguments["kind"], arguments.get("namespace"))
        for task in read(project / "molecule/default/kinds/team.yml")
        for name, arguments in task.items()
        if name.startswith("kubernetes.core.")
    }
    assert found == {("Team", None), ("ConfigMap", "team-sample")}
    assert 'cluster.reconcile("team", NAME)' in (project / "tests/test_team.py").read_text()
    assert "cr_namespace" not in (project / "playbooks/team.yml").read_text()


def test_an_update_generates_a_cluster_scoped_kind_again(project: Path) -> None:
    create_api(project, TEAM).write()
    create_api(project, WEBSITE).write()
    assert scaffold_files(project) == read_originals(project)


def test_kind_in_the_project_file_of_an_older_version_is_namespaced(project: Path) -> None:
    create_api(project, WEBSITE).write()
    file = project / "PROJECT"
    assert "    namespaced: true\n" in file.read_text()
    file.write_text(file.read_text().replace("    namespaced: true\n", ""))
    assert scaffold_files(project)["deploy/crds/websites.yaml"] == (project / "deploy/crds/websites.yaml").read_text()


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


def test_a_directory_that_is_no_project_is_refused_with_what_to_do(tmp_path: Path) -> None:
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


def files(directory: Path) -> dict[str, str]:
    """Return every file below a directory, with its text."""
    return {str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*") if path.is_file()}


def test_new_files_and_new_texts_are_written(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("1")
    ProjectFiles(tmp_path, {"a/b/new": "2"}, {"old": "1 and 3"}).write()
    assert files(tmp_path) == {"old": "1 and 3", "a/b/new": "2"}


def test_everything_that_stands_in_the_way_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("mine")
    (tmp_path / "c").write_text("mine")
    (tmp_path / "d").symlink_to("nowhere")
    (tmp_path / "e").mkdir()
    before = files(tmp_path)
    with pytest.raises(ScaffoldError) as refused:
        ProjectFiles(tmp_path, {"a": "1", "b": "1", "c/x": "1", "d": "1", "e": "1"}, {"b": "2"}).write()
    assert str(refused.value).splitlines()[1:] == [
        "  b",
        f"  {tmp_path / 'c'} (expected a directory)",
        "  d",
        "  e",
        "Nothing was written.",
    ]
    assert files(tmp_path) == before


def test_when_writing_fails_what_was_written_is_taken_back(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("1")
    with pytest.raises(ScaffoldError, match="Nothing was written"):
        ProjectFiles(tmp_path, {"a/new": "2", "a/new/below": "3"}, {"old": "4"}).write()
    assert [path.name for path in tmp_path.rglob("*")] == ["old"]
    assert files(tmp_path) == {"old": "1"}


def test_a_path_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScaffoldError, match=r"too long.*Nothing was written"):
        ProjectFiles(tmp_path, {"x" * 300: "1"}, {}).write()
    assert files(tmp_path) == {}


NAMES = KindNames("web", "shop.example.com", "v1", "Website", "websites")
VALUES = NAMES.values() | {
    "domain": "example.com",
    "tasks": "- name: Nothing",
    "content": "role: website",
    "columns": "",
    "description": "Serves a page.",
}
TREES = ("project", "api", "namespaced", "cluster", "role", "once", "playbook")


@pytest.mark.parametrize("tree", TREES)
def test_no_mark_is_left_in_a_file_or_its_path(tree: str) -> None:
    for path, text in render_tree(tree, VALUES).items():
        assert "%{" not in text
        assert not [mark for mark in ("_name_", "_plural_", "dot.", ".tmpl") if mark in path]


def test_every_template_is_in_a_tree_or_a_snippet() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {*TREES, "snippets"}
    assert all(path.suffix == ".tmpl" for path in FOLDER.rglob("*") if path.is_file())


def test_files_have_the_names_of_the_kind_and_hidden_ones_their_dot() -> None:
    assert "deploy/crds/websites.yaml" in render_tree("api", VALUES)
    assert "roles/website/tasks/main.yml" in render_tree("role", VALUES)
    assert "tests/test_website.py" in render_tree("api", VALUES)
    assert {".gitignore", "roles/.gitkeep"} <= set(render_tree("project", VALUES))


def test_a_value_that_is_missing_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        render_snippet("watch", {})


REPOSITORY = Path(__file__).parents[4]
DEPLOYED = [
    str(path.relative_to(REPOSITORY))
    for part in ("operator", "components")
    for path in sorted((REPOSITORY / "deploy" / part).rglob("*.*"))
    if path.parent.name != "podcount"
]
SHARED = dict(zip(DEPLOYED, DEPLOYED, strict=True)) | {
    ".yamllint": ".yamllint",
    "build/engine": "build/engine",
    "molecule/default/tasks/control_plane_up.yml": "molecule/shared/tasks/control_plane_up.yml",
    "molecule/default/tasks/install.yml": "molecule/shared/tasks/install.yml",
    "molecule/default/tasks/operator_down.yml": "molecule/shared/tasks/operator_down.yml",
    "molecule/default/tasks/operator_up.yml": "molecule/shared/tasks/operator_up.yml",
    "playbooks/tasks/read.yml": "playbooks/tasks/read.yml",
    "playbooks/tasks/reconcile.yml": "playbooks/tasks/reconcile.yml",
    "playbooks/tasks/report.yml": "playbooks/tasks/report.yml",
}


@pytest.mark.parametrize("path", SHARED)
def test_new_project_gets_the_files_that_this_repository_uses(path: str) -> None:
    ours = (REPOSITORY / SHARED[path]).read_text()
    assert render_tree("project", VALUES | {"project": "rolecall"})[path] == ours


def test_the_playbook_for_use_without_an_operator_is_like_those_of_this_repository() -> None:
    ours = (REPOSITORY / "playbooks/foo.yml").read_text()
    assert render_tree("once", VALUES | {"name": "foo", "kind": "Foo"})["playbooks/foo.yml"] == ours


KUSTOMIZATION = """\
# ours
kind: Kustomization
resources: # in this order
    - a.yaml   # the first
    # the second
    - b.yaml

# what follows
patches:
  - path: x.yaml
"""


def test_an_item_comes_after_the_last_one_and_nothing_else_changes() -> None:
    changed = append_item(KUSTOMIZATION, "resources", "- c.yaml", "file")
    assert changed == KUSTOMIZATION.replace("    - b.yaml\n", "    - b.yaml\n    - c.yaml\n")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "---\n",
        "# nothing yet",
        "---\n# a\n- {kind: A}\n# end\n",
        "- kind: A\n  role: |\n    a\n    b\n",
        "- kind: A",
        "  - kind: A\n    list:\n    - 1\n    # of the list\n",
    ],
)
def test_a_document_that_is_a_list_gets_an_entry_more_and_keeps_its_lines(text: str) -> None:
    changed = append_item(text, None, "- kind: B\n  role: b", "file")
    assert yaml.safe_load(changed) == [*(yaml.safe_load(text) or []), {"kind": "B", "role": "b"}]
    kept = iter(changed.splitlines())
    assert all(line in kept for line in text.splitlines())


def test_a_key_without_items_gets_the_first() -> None:
    assert append_item("resources:\n# end\n", "resources", "- a", "file") == "resources:\n  - a\n# end\n"


def test_lists_without_indentation_stay_as_they_are() -> None:
    assert append_item("resources:\n- a\nkind: K\n", "resources", "- b", "file") == "resources:\n- a\n- b\nkind: K\n"


@pytest.mark.parametrize("text", ["resources: [a]\n", "resources: []\n", "kind: K\n", "- a\n", "", "resources: a\n"])
def test_where_no_item_can_be_added_the_file_is_named(text: str) -> None:
    with pytest.raises(ScaffoldError, match=r"^deploy/k\.yaml: (?s:.*)"):
        append_item(text, "resources", "- c.yaml", "deploy/k.yaml")


def test_the_error_for_a_list_in_brackets_says_how_to_write_it() -> None:
    with pytest.raises(ScaffoldError, match="expected the list 'resources' in block style"):
        append_item("resources: [a]\n", "resources", "- c.yaml", "file")


@pytest.mark.parametrize("text", ["resources: [c.yaml]\n", "resources:\n  - c.yaml # mine\n  - d.yaml\n"])
def test_a_list_that_has_the_item_stays_as_it_is(text: str) -> None:
    assert append_item(text, "resources", "- c.yaml", "file") == text


def test_invalid_yaml_is_rejected_with_its_place() -> None:
    with pytest.raises(ScaffoldError, match=r"^file: (?s:.*)line 2"):
        append_item("resources: [\n", "resources", "- c", "file")
    with pytest.raises(ScaffoldError, match=r"^file: (?s:.*)line 1"):
        list_items("[", "file")


def test_a_document_that_is_no_list_has_no_items() -> None:
    assert list_items("# nothing\n", "file") == []
    with pytest.raises(ScaffoldError, match=r"^file: expected a list, found dict"):
        list_items("a: 1\n", "file")


@given(st.lists(st.from_regex(r"[a-m][a-z0-9.]{0,9}", fullmatch=True), max_size=5), st.integers(0, 6), st.booleans())
def test_every_list_of_names_can_be_added_to(names: list[str], indent: int, has_more: bool) -> None:  # noqa: FBT001
    items = "".join(f"{' ' * indent}- {name!r} # why\n\n" for name in names)
    text = "resources:\n" + items + ("more: 1\n" if has_more else "# end\n")
    changed = append_item(text, "resources", "- new", "file")
    assert yaml.safe_load(changed)["resources"] == [*names, "new"]
    assert [line for line in changed.splitlines() if line.strip() != "- new"] == text.splitlines()


@pytest.mark.parametrize(
    ("kind", "plural"),
    [
        ("Website", "websites"),
        ("Policy", "policies"),
        ("Gateway", "gateways"),
        ("Status", "statuses"),
        ("Box", "boxes"),
        ("Batch", "batches"),
        ("Dish", "dishes"),
    ],
)
def test_plurals_follow_simple_english(kind: str, plural: str) -> None:
    assert plural_of(kind) == plural


@given(st.from_regex(r"[A-Z][A-Za-z0-9]{0,49}", fullmatch=True))
def test_the_plural_of_every_kind_is_a_plural_that_may_be_given(kind: str) -> None:
    assert checked("--plural", plural_of(checked("--kind", kind)))


@pytest.mark.parametrize("version", ["v1", "v12", "v1alpha1", "v2beta10"])
def test_versions_of_apis_are_accepted(version: str) -> None:
    assert checked("--version", version) == version


@pytest.mark.parametrize("version", ["", "1", "v0", "v01", "V1", "v1.0", "v1gamma1", "v1alpha", "v1\n"])
def test_invalid_version_is_rejected_with_an_example(version: str) -> None:
    with pytest.raises(ScaffoldError) as refused:
        checked("--version", version)
    assert str(refused.value) == f"--version: expected a version such as v1, v1alpha1 or v2beta3, found {version!r}"


@pytest.mark.parametrize("kind", ["", "website", "Web-Site", "1Site", "Web_Site", "Wébsite", "W" * 51])
def test_invalid_kind_is_rejected(kind: str) -> None:
    with pytest.raises(ScaffoldError, match=r"^--kind: expected "):
        checked("--kind", kind)


@pytest.mark.parametrize("name", ["", "Web", "web_shop", "-web", "web-", "1web", "web.shop", "../web", "w" * 41])
def test_invalid_project_name_is_rejected(name: str) -> None:
    with pytest.raises(ScaffoldError, match=r"^NAME: expected "):
        checked("NAME", name)


@pytest.mark.parametrize(
    "domain", ["", ".com", "example..com", "Example.com", "example.com/", "a" * 64, "a." * 130 + "a"]
)
def test_invalid_domain_is_rejected(domain: str) -> None:
    with pytest.raises(ScaffoldError, match=r"^--domain: expected "):
        checked("--domain", domain)


@pytest.mark.parametrize("domain", ["k8s.io", "kubernetes.io", "web.k8s.io"])
def test_domains_that_kubernetes_guards_are_refused(domain: str) -> None:
    with pytest.raises(ScaffoldError, match="of your own"):
        checked("--domain", domain)
    assert checked("--domain", f"{domain}.example.com")


def test_the_full_group_ends_in_the_domain_and_is_checked_as_a_whole() -> None:
    assert checked_group("shop", "example.com") == "shop.example.com"
    with pytest.raises(ScaffoldError, match=r"^--group with the domain: expected "):
        checked_group("a" * 60, ".".join(["b" * 60] * 4))
    with pytest.raises(ScaffoldError, match=r"^--group: expected .*, found 'Shop'$"):
        checked_group("Shop", "example.com")


def test_a_kind_lends_its_name_in_lower_case() -> None:
    assert KindNames("web", "shop.example.com", "v1", "WebSite", "websites").name == "website"

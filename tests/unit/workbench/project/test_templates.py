from pathlib import Path

import pytest

from rolecall.workbench.project.scaffold import FOLDER, render_snippet, render_tree

VALUES = {
    "project": "web",
    "domain": "example.com",
    "namespace": "web",
    "group": "shop.example.com",
    "version": "v1",
    "kind": "Website",
    "plural": "websites",
    "name": "website",
    "object": "_shop_example_com_website",
    "tasks": "- name: Nothing",
    "content": "role: website",
}
TREES = ("project", "api", "role", "once", "playbook")


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
SHARED = {
    ".yamllint": ".yamllint",
    "deploy/operator/deployment.yaml": "deploy/operator/deployment.yaml",
    "deploy/operator/metrics_service.yaml": "deploy/operator/metrics_service.yaml",
    "molecule/default/tasks/control_plane_up.yml": "molecule/shared/tasks/control_plane_up.yml",
    "molecule/default/tasks/install.yml": "molecule/shared/tasks/install.yml",
    "molecule/default/tasks/operator_down.yml": "molecule/shared/tasks/operator_down.yml",
    "molecule/default/tasks/operator_up.yml": "molecule/shared/tasks/operator_up.yml",
    "playbooks/tasks/read.yml": "playbooks/tasks/read.yml",
    "playbooks/tasks/reconcile.yml": "playbooks/tasks/reconcile.yml",
    "playbooks/tasks/report.yml": "playbooks/tasks/report.yml",
}


@pytest.mark.parametrize("path", SHARED)
def test_what_this_repository_uses_itself_is_what_a_new_project_gets(path: str) -> None:
    ours = (REPOSITORY / SHARED[path]).read_text()
    assert render_tree("project", VALUES | {"project": "rolecall"})[path] == ours


def test_the_playbook_for_use_without_an_operator_is_like_those_of_this_repository() -> None:
    ours = (REPOSITORY / "playbooks/foo.yml").read_text()
    assert render_tree("once", VALUES | {"name": "foo", "kind": "Foo"})["playbooks/foo.yml"] == ours

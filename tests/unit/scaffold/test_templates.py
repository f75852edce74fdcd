import pytest

from rolecall.scaffold.templates import FOLDER, rendered_snippet, rendered_tree

VALUES = {
    "project": "web",
    "domain": "example.com",
    "namespace": "web",
    "group": "shop.example.com",
    "version": "v1",
    "kind": "Website",
    "plural": "websites",
    "name": "website",
    "tasks": "- name: Nothing",
    "content": "role: website",
}
TREES = ("project", "api", "role", "playbook")


@pytest.mark.parametrize("tree", TREES)
def test_no_mark_is_left_in_a_file_or_its_path(tree: str) -> None:
    for path, text in rendered_tree(tree, VALUES).items():
        assert "%{" not in text
        assert not [mark for mark in ("_name_", "_plural_", "dot.", ".tmpl") if mark in path]


def test_every_template_is_in_a_tree_or_a_snippet() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {*TREES, "snippets"}
    assert all(path.suffix == ".tmpl" for path in FOLDER.rglob("*") if path.is_file())


def test_files_have_the_names_of_the_kind_and_hidden_ones_their_dot() -> None:
    assert "deploy/crds/websites.yaml" in rendered_tree("api", VALUES)
    assert "roles/website/tasks/main.yml" in rendered_tree("role", VALUES)
    assert {".gitignore", "roles/.gitkeep"} <= set(rendered_tree("project", VALUES))


def test_a_value_that_is_missing_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        rendered_snippet("watch", {})

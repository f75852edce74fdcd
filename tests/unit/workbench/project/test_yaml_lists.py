import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rolecall.workbench.project.scaffold import ScaffoldError, append_item, list_items

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


def test_what_is_no_yaml_is_refused_with_the_place() -> None:
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

"""ansible-core's own loader reads the file of extra vars: the object's values as data, or an error.

The objects are an attacker's: their keys are those that the loader acts on, and their strings are templates.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible import template
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.utils.unsafe_proxy import AnsibleUnsafe
from hypothesis import given
from hypothesis import strategies as st

from rolecall.kube.references import GVK, RawObject
from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.watches import Watch
from rolecall.runner.runs.variables import (
    MAX_LEVELS,
    check_nesting,
    extra_vars,
    snake_case_keys,
    variables_file,
)

WATCH = Watch(GVK("test.example.com", "v1", "Thing"), RoleContent(Path("/roles/thing")))
TEMPLATE = "{{ lookup('pipe', 'id') }}"
SCALARS = st.sampled_from([TEMPLATE, "{% if x %}", "text", "- [", "\t", 1, 2.5, True, None, 10**400])
KEYS = st.sampled_from(
    [
        "__ansible_unsafe",
        "__ansible_vault",
        "__ansible_type",
        "__ansibleUnsafe",
        "__ansible_new",
        "name",
        TEMPLATE,
        "\t",
    ]
)
FIELDS = st.sampled_from(["message", "labels", "a b", "{{ x }}"]) | st.text()
HOSTILE: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | FIELDS, inner, max_size=3),
    max_leaves=10,
)


def thing(spec: Any) -> RawObject:
    return {"apiVersion": "test.example.com/v1", "kind": "Thing", "metadata": {"name": "one"}, "spec": spec}


def nested(levels: int, inner: Any, *, as_list: bool) -> Any:
    for _ in range(levels):
        inner = [inner] if as_list else {"a": inner}
    return inner


def load(text: str, directory: Path) -> dict[str, Any]:
    """Load the file as ansible-playbook loads extra vars: its text is trusted. Raises AnsibleError."""
    path = directory / "extravars"
    path.write_text(text)
    options = {"trusted_as_template": True} if hasattr(template, "trust_as_template") else {}
    loaded: dict[str, Any] = DataLoader().load_from_file(str(path), cache="none", **options)
    return loaded


def evaluated(value: Any) -> Iterator[Any]:
    """Yield the strings and keys that Ansible would evaluate, and values that are no data."""
    if isinstance(value, dict):
        for key, item in value.items():
            if is_evaluated(key, as_key=True):
                yield key
            yield from evaluated(item)
    elif isinstance(value, list):
        for item in value:
            yield from evaluated(item)
    elif isinstance(value, str):
        if is_evaluated(value, as_key=False):
            yield value
    elif value is not None and not isinstance(value, int | float):
        yield value


def is_evaluated(text: str, *, as_key: bool) -> bool:
    """Return whether ansible-core would evaluate the string; before 2.19, all are unless they are marked."""
    if hasattr(template, "is_trusted_as_template"):
        return bool(template.is_trusted_as_template(text))
    return not isinstance(text, AnsibleUnsafe) and ("{{" in text or "{%" in text or not as_key)


def check(spec: Any, directory: Path, *, snake_case: bool = True) -> None:
    """Assert that the object is rejected, or that Ansible loads exactly its values and evaluates none of them."""
    obj = thing(spec)
    watch = replace(WATCH, snake_case_parameters=snake_case)
    try:
        check_nesting(obj)
        variables = extra_vars(obj, watch, mark_unsafe=True)
    except ValueError:
        return
    try:
        loaded = load(variables_file(variables), directory)
    except (AnsibleError, RecursionError):
        return
    assert list(evaluated(loaded)) == []
    assert loaded["_test_example_com_thing"] == obj
    for name, value in (snake_case_keys(spec) if snake_case else spec).items():
        if name not in ("ansible_operator_meta", "_test_example_com_thing", "_test_example_com_thing_spec"):
            assert loaded[name] == value


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("variables")


@given(spec=st.dictionaries(FIELDS, HOSTILE, max_size=4), snake_case=st.booleans())
def test_ansible_loads_any_object_as_data_or_not_at_all(directory: Path, spec: Any, *, snake_case: bool) -> None:
    check(spec, directory, snake_case=snake_case)


@given(levels=st.integers(0, 1200), as_list=st.booleans())
def test_ansible_evaluates_no_string_of_a_nested_object(directory: Path, levels: int, *, as_list: bool) -> None:
    check({"deep": nested(levels, TEMPLATE, as_list=as_list)}, directory)


def test_ansible_loads_an_object_nested_to_the_limit(directory: Path) -> None:
    deep = nested(MAX_LEVELS - 2, TEMPLATE, as_list=True)  # the object and its spec are two levels
    check_nesting(thing({"deep": deep}))
    variables = extra_vars(thing({"deep": deep}), WATCH, mark_unsafe=True)
    assert load(variables_file(variables), directory)["deep"] == deep


def test_object_nested_deeper_is_rejected_with_advice() -> None:
    with pytest.raises(ValueError, match=r"more than 100 levels.*flatter"):
        check_nesting(thing({"deep": nested(MAX_LEVELS - 1, 1, as_list=True)}))


def test_managed_fields_may_be_nested_deeper() -> None:
    obj = thing({})
    obj["metadata"]["managedFields"] = [nested(2 * MAX_LEVELS, 1, as_list=False)]
    check_nesting(obj)


@pytest.mark.parametrize("key", ["__ansible_unsafe", "__ansible_vault", "__ansible_type", "__ansibleVault"])
@pytest.mark.parametrize("mark_unsafe", [False, True])
def test_key_that_the_loader_acts_on_is_rejected_at_any_depth(key: str, *, mark_unsafe: bool) -> None:
    """Without marks too: the vault key would decrypt any text of the operator."""
    obj = thing({"labels": [{"a": {key: "x"}}]})
    with pytest.raises(ValueError, match=r"has the key '__ansible_.*rename the key"):
        extra_vars(obj, WATCH, mark_unsafe=mark_unsafe)


def test_key_that_the_loader_acts_on_is_rejected_outside_the_spec() -> None:
    obj = {**thing({}), "status": {"__ansible_vault": "x"}}
    with pytest.raises(ValueError, match="__ansible_vault"):
        extra_vars(obj, WATCH)


@pytest.mark.parametrize("rest", ['{"a": {"__ansible_unsafe": 1}}', "[" * 3_000, '{"a": "{{ x }}"', "a: '{{ x }}'"])
def test_file_that_is_not_decoded_as_json_is_not_parsed_as_yaml(directory: Path, rest: str) -> None:
    """The first character decides, not the text behind it."""
    start = variables_file({})[0]
    try:
        loaded = load(start + rest, directory)
    except (AnsibleError, RecursionError):
        return
    assert list(evaluated(loaded)) == []

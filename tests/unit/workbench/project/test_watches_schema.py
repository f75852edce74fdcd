import copy
import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator  # type: ignore[import-untyped]

from rolecall.runner.config import watch_keys as keys
from rolecall.runner.config.watch_keys import BOOLEAN, DURATION, INTEGER, LIST, MAPPING, PATH, TEXT, Key, Type
from rolecall.runner.config.watches import parse_watches
from rolecall.runner.config.yaml_reader import first_document
from rolecall.workbench.project.watches_schema import watches_schema

PROJECT = Path(__file__).parents[4]
FILES = [
    PROJECT / "watches.yaml",
    *(each for top in ("bench", "tests") for each in (PROJECT / top).rglob("watches.yaml")),
]
SCHEMA = watches_schema()
BEYOND = re.compile(r"not found|not a JSONPath|declared needs|duplicate GVK|expected a lowercase domain name")
"""Errors that no schema can tell."""

LETTERS = st.text(st.characters(exclude_characters="$", exclude_categories=["Cs", "Cc"]), max_size=5)
SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9, allow_nan=False) | LETTERS
JUNK = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(LETTERS, inner, max_size=2))
NO_TEXT = JUNK.filter(lambda value: not isinstance(value, str))
PATHS = st.sampled_from(["$.spec.selector", "$.status.phase"])
DURATIONS = st.sampled_from(["15s", "1h30m", "+.5s", "0", "-0s", "-1s", "soon", "15", "15s\n", "1.ms", ""])
BOOLEANS = st.sampled_from([True, False, "yes", "Off", "TRUE", "n", "perhaps", "on\n", ""])
OF_TYPES: Mapping[Type[Any], st.SearchStrategy[Any]] = {
    TEXT: st.just("thing") | JUNK,
    BOOLEAN: BOOLEANS | JUNK,
    INTEGER: st.integers(-2, 30) | JUNK,
    DURATION: DURATIONS | JUNK,
    PATH: PATHS | NO_TEXT,
    keys.PATH_OR_MAPPING: PATHS | NO_TEXT,
    MAPPING: st.dictionaries(LETTERS, JUNK, max_size=2) | JUNK,
    LIST: st.lists(JUNK, max_size=2) | JUNK,
}
OF_KEYS: Mapping[Key[Any], st.SearchStrategy[Any]] = {
    keys.VARIABLES: st.sampled_from(["all", "some", None]),
    keys.MATCH_LABELS: st.dictionaries(LETTERS, LETTERS, max_size=2) | JUNK,
    keys.EXPRESSION_OPERATOR: st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Like"]) | JUNK,
    keys.VALUES: st.lists(LETTERS, max_size=2) | JUNK,
    keys.FIELDS: st.lists(PATHS | NO_TEXT, max_size=2) | NO_TEXT,
    keys.SENSITIVE: st.lists(PATHS | NO_TEXT, max_size=2) | NO_TEXT,
    keys.STATUS: st.dictionaries(LETTERS, PATHS | NO_TEXT, max_size=2) | NO_TEXT,
}


def values_of(key: Key[Any]) -> st.SearchStrategy[Any]:
    """Return values of a key, right ones and wrong ones."""
    if not key.keys:
        return OF_KEYS.get(key, OF_TYPES[key.type])
    nested = mapping_of(key.keys)
    return (st.lists(nested, max_size=2) if key.type is LIST else nested) | OF_TYPES[key.type]


def mapping_of(declared: tuple[Key[Any], ...]) -> st.SearchStrategy[dict[str, Any]]:
    """Return mappings with some of the keys, and sometimes an unknown one."""
    known = st.fixed_dictionaries(
        {key.name: st.just("thing") | values_of(key) for key in declared if key.is_required},
        optional={key.name: values_of(key) for key in declared if not key.is_required},
    )
    unknown: st.SearchStrategy[dict[str, Any]] = st.sampled_from([{}, {}, {"colour": 1}])
    return st.builds(lambda one, other: {**one, **other}, known, unknown)


ENTRIES = st.builds(
    lambda entry, chosen: {"role": "thing"} | {name: entry[name] for name in entry if name in chosen},
    mapping_of(keys.ENTRY),
    st.sets(st.sampled_from([*(key.name for key in keys.ENTRY), "colour"]), max_size=4).map(
        lambda names: {"version", "kind", *names}
    ),
)
"""Entries with few keys: one that has all of them is hardly ever right."""


def is_accepted(text: str) -> bool:
    """Return whether ``rolecall validate`` finds no unknown key, and no error that a schema could find."""
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "roles" / "thing").mkdir(parents=True)
        file = Path(directory) / "watches.yaml"
        file.write_text(text)
        parsed = parse_watches(file, {}, Path(directory))
    return not parsed.unknown_keys and not [error for error in parsed.errors if not BEYOND.search(str(error))]


@given(ENTRIES | JUNK)
def test_the_schema_accepts_what_validate_accepts_and_nothing_else(entry: Any) -> None:
    text = json.dumps([entry])
    document = first_document(text)
    refused = [error.message for error in Draft7Validator(SCHEMA).iter_errors(document)]
    assert (not refused) == is_accepted(text), refused


@pytest.mark.parametrize("key", ["kind", "version"])
@pytest.mark.parametrize(
    "value", ["a", "Ab-1", "1a", "a-", "a.b", "ä", "a\n", "a" * 63, "a" * 64, 0, 1.5, True, None, ""]
)
def test_names_of_kinds_are_judged_as_by_validate(key: str, value: object) -> None:
    entry = {"version": "v1", "kind": "Thing", "role": "thing", key: value}
    text = json.dumps([entry])
    assert Draft7Validator(SCHEMA).is_valid(first_document(text)) == is_accepted(text)


def test_the_schema_is_one() -> None:
    Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PROJECT)))
def test_every_file_of_this_repository_is_accepted(file: Path) -> None:
    Draft7Validator(SCHEMA).validate(first_document(file.read_text()))


@pytest.mark.parametrize("key", ["maxRunnerArtifacts", "markUnsafe", "reconcilePeriod"])
def test_a_reference_to_a_variable_is_accepted_whatever_the_type(key: str) -> None:
    entry = {"version": "v1", "kind": "Thing", "role": "thing"}
    Draft7Validator(SCHEMA).validate([{**entry, key: "${VALUE}"}])
    assert list(Draft7Validator(SCHEMA).iter_errors([{**entry, key: "VALUE"}]))


def test_every_key_is_described() -> None:
    properties = SCHEMA["items"]["properties"]
    assert {name: each["description"] for name, each in properties.items()} == {
        key.name: key.help for key in keys.ENTRY
    }


def test_making_the_schema_changes_no_declaration() -> None:
    before = copy.deepcopy(watches_schema())
    assert watches_schema() == before
